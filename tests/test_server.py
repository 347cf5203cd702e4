"""The server from outside: the same answers as the command line, bad clients, many clients, and sudden death."""

import json
import multiprocessing
import os
import signal
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("motionmcp")

from starlette.testclient import TestClient

import anchorroute as ar
from anchorroute import anchor_file, cli
from anchorroute.report import measure
from anchorroute.server import running
from anchorroute.server.app import Server
from anchorroute.server.files import Workspace
from anchorroute.server.limits import Limits

from motions import walk
from serving import StandIn, live, wait_until

WALK = {"text": "a person walks", "seconds": 2, "solver": "none"}
ANCHORS = {"version": 1, "anchors": [{"at": 1, "joint": "left_wrist", "position": [0.3, 1.2, 0.4]}]}


def client_of(server: Server) -> TestClient:
    return TestClient(server.application, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with client_of(Server(StandIn())) as opened:  # type: ignore[arg-type]
        yield opened


def post(url: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    data = json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_file_is_the_command_lines_bit_for_bit(tmp_path: Path) -> None:
    path, anchors = tmp_path / "walk.bvh", tmp_path / "a.json"
    anchors.write_text(json.dumps(ANCHORS))
    options = ["--seconds", "2", "--seed", "5", "--solver", "none", "--model", "debug", "--json"]
    assert cli.run(["generate", "a person walks", "-a", str(anchors), *options, "-o", str(path)]) == 0
    with client_of(Server(ar.untrained())) as client:
        body = {**WALK, "seed": 5, "anchors": ANCHORS, "format": "bvh"}
        answer = client.post("/v1/generate?answer=file", json=body)
        assert answer.status_code == 200, answer.text
        told = client.post("/v1/generate", json=body).json()["samples"][0]["report"]
    assert answer.content == path.read_bytes()
    own = measure(path, ar.AnchorSet.load(anchors)).to_dict()
    assert told["anchors"] == json.loads(json.dumps(own))["anchors"]
    assert told["source"] == "motion.bvh"


def test_a_job_from_beginning_to_end(client: TestClient) -> None:
    accepted = client.post("/v1/generate?answer=job", json={**WALK, "samples": 2, "anchors": ANCHORS})
    assert accepted.status_code == 202
    place = accepted.headers["location"]
    with client.stream("GET", f"{place}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        text = "".join(stream.iter_text())
    events = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert events[-1] == "done"
    data = json.loads([line for line in text.splitlines() if line.startswith("data: ")][-1].removeprefix("data: "))
    assert data["state"] == client.get(place).json()["state"] == "done"
    result = client.get(f"{place}/result").json()
    assert [sample["seed"] for sample in result["samples"]] == [0, 1]
    assert result["samples"][0]["report"]["of"] == 1
    glb = client.get(result["samples"][1]["file"])
    assert glb.content[:4] == b"glTF"
    assert client.get(f"{place}/files/npz?fps=30").content[:2] == b"PK"
    assert client.get(f"{place}/files/bvh?sample=2").status_code == 404
    assert client.delete(place).json()["state"] == "done"  # too late


def test_refine_takes_text_or_a_job(client: TestClient, tmp_path: Path) -> None:
    path = ar.Motion.from_joints(walk(40).numpy()).save(tmp_path / "take.bvh")
    refined = client.post("/v1/refine", json={"bvh": path.read_text(), "anchors": ANCHORS})
    assert refined.status_code == 200, refined.text
    assert client.post("/v1/refine", json={"job": refined.json()["id"], "anchors": ANCHORS}).status_code == 200
    assert client.post("/v1/refine", json={"job": "other", "anchors": ANCHORS}).status_code == 404
    for wrong, match in [
        ({"bvh": path.read_text()}, "nothing to refine"),
        ({"anchors": ANCHORS}, "either 'bvh'"),
        ({"bvh": "x", "job": "y", "anchors": ANCHORS}, "either 'bvh'"),
        ({"bvh": "HIERARCHY nonsense", "anchors": ANCHORS}, "HIERARCHY"),
        ({"bvh": str(path), "anchors": ANCHORS}, "HIERARCHY"),  # a path is text like any other, and opens nothing
    ]:
        answer = client.post("/v1/refine", json=wrong)
        assert (answer.status_code, match in answer.text) == (400, True), answer.text


@pytest.mark.parametrize(
    ("body", "kind", "status", "match"),
    [
        (b"{}", "text/plain", 415, "application/json"),
        (b"{}", "", 415, "no type"),
        (b"{", "application/json", 422, "JSON"),
        (b"[" * 100_000, "application/json", 400, "parsing"),
        (b'{"text": "a", "path": "/etc/passwd"}', "application/json", 422, "path"),
        (b'{"text": "a", "anchors": "/etc/passwd"}', "application/json", 422, "anchors"),
        (b'{"text": "a walk", "seconds": NaN}', "application/json", 422, "finite"),
        (b'{"text": "a walk", "seconds": 36000}', "application/json", 400, "2 to 9.8 s"),
        (b'{"text": "a walk", "frames": 1' + b"0" * 400 + b"}", "application/json", 422, ""),
        (b'{"text": ""}', "application/json", 400, "empty"),
        (b'{"text": "\\ud800"}', "application/json", 400, "Latin"),
        (b'{"text": "a walk", "anchors": {"version": 2}}', "application/json", 400, "version 2"),
        (b'{"text": "this will explode", "solver": "none"}', "application/json", 500, "its log"),
        (b"x" * (8 * 2**20 + 1), "application/json", 413, "8 MiB"),
    ],
    ids=range(14),
)
def test_bad_bodies(client: TestClient, body: bytes, kind: str, status: int, match: str) -> None:
    answer = client.post("/v1/generate", content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == {"code", "message", "details"}
    assert match in answer.text


def test_mmcp_refuses_in_its_own_words(client: TestClient) -> None:
    model = client.get("/capabilities").json()["models"][0]
    segment = {"type": "text", "prompt": "a walk", "duration_frames": 10**400}
    body = {"protocol_version": "1.4", "model": model["id"], "skeleton": model["canonical_skeleton"]}
    for change, status, code in [
        ({"segments": [segment]}, 422, "schema_validation"),  # a number that no float holds
        ({"segments": [{**segment, "duration_frames": 39}]}, 400, "invalid_options"),
        ({"segments": [{**segment, "duration_frames": 40, "prompt": "走"}]}, 400, "invalid_request"),
        ({"protocol_version": "2.0"}, 400, "version_unsupported"),
    ]:
        answer = client.post("/generate", json={**body, **change})
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    good = {**body, "segments": [{**segment, "duration_frames": 40}]}
    batch = {"protocol_version": "1.4", "requests": [good, {**good, "model": "other"}, good]}
    results = client.post("/generate", json=batch).json()["results"]
    assert [sorted(one) for one in results] == [["gltf"], ["error"], ["gltf"]]


def test_pages_and_missing_pages(client: TestClient) -> None:
    assert client.get("/health").json()["status"] == "ok"
    assert client.get("/v1/schema").json() == json.loads(json.dumps(anchor_file.schema()))
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/generate", "/capabilities", "/v1/generate", "/v1/refine"} <= set(paths)
    assert client.get("/docs").status_code == 200
    assert client.get("/nothing").json()["error"]["code"] == "not_found"
    wrong = client.put("/v1/generate", json={})
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert client.get("/v1/jobs/none/events").status_code == 404


def test_only_this_machine_without_a_token(client: TestClient) -> None:
    hosts = {"localhost:8000": 200, "[::1]:80": 200, "[::1]": 200, "evil.example": 403, "127.0.0.1.evil.example": 403}
    for host, status in hosts.items():
        assert client.get("/capabilities", headers={"host": host}).status_code == status


def test_with_a_token() -> None:
    with client_of(Server(StandIn(), token="a secret")) as client:  # type: ignore[arg-type]
        for given in ("", "a secret", "Bearer a secre", "Bearer a secret ", "Bearer \xe4"):
            answer = client.get("/capabilities", headers={"authorization": given.encode("latin-1")})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        right = {"authorization": "Bearer a secret"}
        assert client.get("/capabilities", headers={**right, "host": "studio.example"}).status_code == 200
        assert client.get("/health").status_code == 200


def test_who_needs_a_token() -> None:
    assert [running.needs_token(h) for h in ("127.0.0.1", "localhost", "::1", "127.1.2.3")] == [False] * 4
    assert [running.needs_token(h) for h in ("0.0.0.0", "::", "192.168.1.5", "studio.example")] == [True] * 4
    assert running.chosen_token("127.0.0.1", None) is None
    assert running.chosen_token("0.0.0.0", "mine") == "mine"
    assert len(running.chosen_token("0.0.0.0", None) or "") > 24


def test_64_clients_at_once_lose_nothing() -> None:
    pipe = StandIn()
    with live(Server(pipe, limits=Limits(gather_seconds=0.02))) as url, ThreadPoolExecutor(64) as clients:  # type: ignore[arg-type]
        bodies = [{**WALK, "text": f"walk {k}", "seed": k, "format": "npz"} for k in range(64)]
        answers = list(clients.map(lambda body: post(f"{url}/v1/generate", body), bodies))
    assert [status for status, _ in answers] == [200] * 64
    assert [(told["text"], told["samples"][0]["seed"]) for _, told in answers] == [(f"walk {k}", k) for k in range(64)]
    assert sum(map(len, pipe.calls)) == 64
    assert len(pipe.calls) < 64


def test_a_full_queue_over_the_wire() -> None:
    pipe = StandIn(threading.Event())
    with client_of(Server(pipe, limits=Limits(waiting=1))) as client:  # type: ignore[arg-type]
        first = client.post("/v1/generate?answer=job", json=WALK).headers["location"]
        wait_until(pipe.entered.is_set)
        second = client.post("/v1/generate?answer=job", json=WALK).headers["location"]
        refused = client.post("/v1/generate?answer=job", json=WALK)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get(f"{second}/result").status_code == 409
        assert client.delete(second).json()["state"] == "cancelled"
        assert client.delete(first).json()["state"] == "cancelled"
        assert client.get(f"{first}/result").status_code == 409


def _raw(url: str, head: bytes) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    opened = socket.create_connection((host, int(port)), 20)
    opened.sendall(head)
    return opened


def test_bad_connections() -> None:
    pipe = StandIn(threading.Event())
    server = Server(pipe, limits=Limits(body_seconds=0.3))  # type: ignore[arg-type]
    body = json.dumps(WALK).encode()
    head = b"POST /v1/generate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: %d\r\n\r\n"
    with live(server) as url:
        slow = _raw(url, head % 100)  # promises a body and sends none
        assert slow.recv(4096).startswith(b"HTTP/1.1 408")
        slow.close()
        liar = _raw(url, head % 10**12)
        assert liar.recv(4096).startswith(b"HTTP/1.1 413")
        liar.close()
        gone = _raw(url, head % len(body) + body)
        wait_until(pipe.entered.is_set)
        gone.shutdown(socket.SHUT_WR)
        gone.close()
        wait_until(lambda: server.queue.running == 0)  # the gate is shut: only leaving ends the job
        pipe.gate = None
        assert post(f"{url}/v1/generate", WALK)[0] == 200


def test_a_dead_servers_folder_is_removed(tmp_path: Path) -> None:
    own = Workspace(tmp_path)
    dead = tmp_path / "anchorroute-serve-999999999-x"
    foreign = tmp_path / "anchorroute-serve-notes"
    for folder in (dead, foreign):
        folder.mkdir()
        (folder / "half.glb").write_bytes(b"glTF")
    assert Workspace(tmp_path).folder.is_dir()
    assert (own.folder.is_dir(), dead.exists(), foreign.exists()) == (True, False, True)


def _serve(folder: Path, port: int, gate: bool) -> None:
    os.environ["TMPDIR"] = str(folder)
    import tempfile

    tempfile.tempdir = None
    running.serve(StandIn(threading.Event() if gate else None), "127.0.0.1", port)  # type: ignore[arg-type]


def _started(folder: Path, port: int, *, gate: bool) -> Any:
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(folder, port, gate))
    process.start()

    def up() -> bool:
        try:
            return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200)
        except OSError:
            return False

    wait_until(up)
    return process


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="servers are forked here")
def test_kill_and_restart_leave_no_half_file(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    killed = _started(tmp_path, port, gate=True)
    assert post(f"{url}/v1/generate?answer=job", WALK)[0] == 202
    (left,) = tmp_path.iterdir()
    (left / "half.glb").write_bytes(b"glTF")  # as if it died while writing
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(10)
    assert left.is_dir()
    again = _started(tmp_path, port, gate=False)
    assert not left.exists()
    assert post(f"{url}/v1/generate", WALK)[0] == 200
    os.kill(again.pid, signal.SIGTERM)
    again.join(10)
    assert again.exitcode in {0, -signal.SIGTERM}
    assert list(tmp_path.iterdir()) == []


def test_sigterm_reports_who_waits_and_finishes_what_runs() -> None:
    pipe = StandIn(threading.Event())
    server = Server(pipe)  # type: ignore[arg-type]
    with live(server) as url, ThreadPoolExecutor(2) as clients:
        first = clients.submit(post, f"{url}/v1/generate", WALK)
        wait_until(pipe.entered.is_set)
        second = clients.submit(post, f"{url}/v1/generate", {**WALK, "guidance": 1})
        wait_until(lambda: server.queue.waiting == 1)
        assert server.queue._worker is not None
        server.queue._worker.get_loop().call_soon_threadsafe(server.queue.stop)
        status, told = second.result(20)
        assert (status, told["error"]["code"]) == (503, "model_unavailable")
        assert pipe.gate is not None
        pipe.gate.set()
        assert first.result(20)[0] == 200


def test_no_request_that_fits_the_schema_breaks_the_server() -> None:
    schemathesis = pytest.importorskip("schemathesis")
    hypothesis = pytest.importorskip("hypothesis")
    application = Server(StandIn()).application  # type: ignore[arg-type]
    schema = schemathesis.openapi.from_dict(application.openapi())
    tried = 0
    with TestClient(application, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        for found in schema.get_all_operations():
            operation = found.ok()

            @hypothesis.given(case=operation.as_strategy())
            @hypothesis.settings(
                max_examples=4,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            def probe(case: Any) -> None:
                nonlocal tried
                tried += 1
                body = None if isinstance(case.body, schemathesis.core.NotSet) else json.dumps(case.body)
                kind = {} if body is None else {"content-type": "application/json"}
                path, query = case.formatted_path, case.query or None
                answer = client.request(case.method, path, params=query, content=body, headers=kind)
                assert answer.status_code < 500, (case.method, case.path, case.body, answer.text)

            probe()
    assert tried >= 20  # ten operations, four requests where the schema leaves that many
