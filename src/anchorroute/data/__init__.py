"""Where motion comes from: mocap takes, data sets in the HumanML3D layout, anchors drawn from clips."""
