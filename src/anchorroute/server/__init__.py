"""Motion over HTTP: MMCP for the clients that exist, `/v1` for everything AnchorRoute can do, one queue behind both."""
