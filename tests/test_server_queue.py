"""The queue: what goes together, what is refused, what ends how; over a stand-in for the pipeline."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("motionmcp")

from motionmcp.errors import ProtocolError

from anchorroute.errors import AnchorError, RequestError
from anchorroute.result import Result
from anchorroute.server.limits import Limits
from anchorroute.server.problems import RETRY, Problem, response
from anchorroute.server.queue import Job, Queue
from anchorroute.server.work import Generation

from serving import StandIn

import anchorroute as ar  # isort: skip


def text_and_seed(result: Result) -> tuple[str, int]:
    return result.text, result.samples[0].seed


def play(test: Callable[[Queue, StandIn], Awaitable[Any]], limits: Limits | None = None, *, gate: bool = True) -> Any:
    """Run a test in an event loop with a queue whose first batch waits for the stand-in's gate."""
    pipe = StandIn(threading.Event() if gate else None)

    async def run() -> Any:
        queue = Queue(pipe, limits or Limits(gather_seconds=0.0))  # type: ignore[arg-type]
        queue.start()
        try:
            return await asyncio.wait_for(test(queue, pipe), 20)
        finally:
            if pipe.gate is not None:
                pipe.gate.set()
            await queue.close()

    return asyncio.run(run())


def submit(queue: Queue, text: str, **more: Any) -> Job:
    return queue.submit(Generation(text, seconds=2, **more), text_and_seed)


async def begun(job: Job) -> None:
    while job.state == "waiting":
        await asyncio.sleep(0.001)


def test_waiting_jobs_go_together_and_each_gets_its_own() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        first = submit(queue, "first")
        await begun(first)
        jobs = [submit(queue, f"walk {k}", seed=k) for k in range(20)]
        assert pipe.gate is not None
        pipe.gate.set()
        for k, job in enumerate(jobs):
            assert (await queue.finished(job)).answer == (f"walk {k}", k)
        assert [len(texts) for texts in pipe.calls] == [1, 16, 4]
        assert (queue.answered, queue.batches, queue.waiting, queue.running) == (21, 3, 0, 0)

    play(run)


def test_rows_bound_a_batch() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        await begun(submit(queue, "first"))
        jobs = [submit(queue, f"walk {k}", samples=10) for k in range(5)]
        assert pipe.gate is not None
        pipe.gate.set()
        for job in jobs:
            await queue.finished(job)
        assert [len(texts) for texts in pipe.calls] == [1, 3, 2]  # 32 rows at most

    play(run)


def test_only_jobs_that_agree_go_together() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        await begun(submit(queue, "first"))
        others = {"b": {"solver": "none"}, "c": {"guidance": 1.0}, "d": {"steps": 5}, "e": {"samples": 2}}
        jobs = [
            submit(queue, "a1"),
            *(submit(queue, text, **more) for text, more in others.items()),
            submit(queue, "a2"),
        ]
        assert pipe.gate is not None
        pipe.gate.set()
        for job in jobs:
            await queue.finished(job)
        assert pipe.calls == [["first"], ["a1", "a2"], ["b"], ["c"], ["d"], ["e"]]

    play(run)


def test_a_batch_of_one_turns_batching_off() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        for job in [submit(queue, f"walk {k}") for k in range(4)]:
            await queue.finished(job)
        assert [len(texts) for texts in pipe.calls] == [1, 1, 1, 1]

    play(run, Limits(batch=1), gate=False)


def test_a_full_queue_says_when_to_come_again() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        await begun(submit(queue, "first"))
        waiting = [submit(queue, f"walk {k}") for k in range(3)]
        with pytest.raises(ProtocolError, match="3 jobs are waiting") as caught:
            submit(queue, "one too many")
        assert caught.value.status_code == 429
        assert int(response(caught.value).headers["retry-after"]) >= caught.value.details[RETRY] >= 1
        queue.cancel(waiting[0])
        submit(queue, "there is room again")

    play(run, Limits(waiting=3))


def test_what_cannot_be_done_never_enters_the_queue() -> None:
    async def run(queue: Queue, _: StandIn) -> None:
        late = ar.AnchorSet((ar.Anchor(5.0, "pelvis", (0.0, 1.0, 0.0)),))
        with pytest.raises(RequestError, match="empty"):
            submit(queue, "  ")
        with pytest.raises(AnchorError, match="beyond the clip"):
            submit(queue, "walk", anchors=late)
        with pytest.raises(RequestError, match="at most 16"):
            submit(queue, "walk", samples=17)
        many = ar.AnchorSet(tuple(ar.Anchor(k * 1e-3, "pelvis", (0.0, 1.0, 0.0)) for k in range(2001)))
        with pytest.raises(RequestError, match="2001 anchors"):
            queue.submit(Generation("walk", many), text_and_seed)
        assert queue.waiting == 0

    play(run)


def test_cancelling_one_of_a_batch_leaves_the_others() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        await begun(submit(queue, "first"))
        jobs = [submit(queue, f"walk {k}") for k in range(3)]
        assert pipe.gate is not None
        queue.cancel(jobs[2])  # while it waits
        pipe.gate.set()
        assert (await queue.finished(jobs[0])).answer == ("walk 0", 0)
        with pytest.raises(Problem, match="cancelled") as caught:
            await queue.finished(jobs[2])
        assert caught.value.status == 409
        assert pipe.calls[1] == ["walk 0", "walk 1"]

    play(run)


def test_a_batch_that_nobody_wants_is_stopped() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        job = submit(queue, "walk")
        await begun(job)
        waiter = asyncio.create_task(queue.finished(job))
        await asyncio.sleep(0)
        waiter.cancel()  # the client left
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert job.state == "cancelled"
        assert pipe.gate is not None
        assert not pipe.gate.is_set()
        while queue.batches and queue._running:  # the gate is shut: only `cancel` can end this batch
            await asyncio.sleep(0.001)

    play(run)


def test_a_job_may_not_compute_for_ever() -> None:
    async def run(queue: Queue, _: StandIn) -> None:
        with pytest.raises(Problem, match=r"stopped after 0\.05 s") as caught:
            await queue.finished(submit(queue, "walk"))
        assert (caught.value.status, caught.value.code) == (504, "timeout")

    play(run, Limits(job_seconds=0.05))


def test_no_job_fails_for_anothers_sake() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        await begun(submit(queue, "first"))
        bad, good, worse = submit(queue, "this will fail"), submit(queue, "walk"), submit(queue, "this will explode")
        assert pipe.gate is not None
        pipe.gate.set()
        assert (await queue.finished(good)).answer == ("walk", 0)
        with pytest.raises(Problem, match="this text fails") as caught:
            await queue.finished(bad)
        assert caught.value.status == 400
        with pytest.raises(Problem) as failed:
            await queue.finished(worse)
        assert failed.value.status == 500
        assert "secret" not in failed.value.message

    play(run)


def test_progress_reaches_watchers_and_ends_with_the_job() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        job = submit(queue, "walk")
        seen = []
        async for state in job.watch():
            seen.append((state["state"], state["progress"].get("stage")))
            if state["progress"] and pipe.gate is not None:
                pipe.gate.set()
        assert seen[0] == ("waiting", None)
        assert ("running", "tokens") in seen
        assert seen[-1] == ("done", "tokens")

    play(run)


def test_stopping_tells_those_who_wait_and_finishes_what_runs() -> None:
    async def run(queue: Queue, pipe: StandIn) -> None:
        running = submit(queue, "first")
        await begun(running)
        waiting = submit(queue, "second")
        queue.stop()
        with pytest.raises(Problem, match="stopping") as caught:
            await queue.finished(waiting)
        assert caught.value.status == 503
        with pytest.raises(ProtocolError, match="stopping"):
            submit(queue, "third")
        assert pipe.gate is not None
        pipe.gate.set()
        assert (await queue.finished(running)).state == "done"

    play(run)


def test_grace_ends() -> None:
    async def run(queue: Queue, _: StandIn) -> None:
        running = submit(queue, "first")
        await begun(running)
        await queue.close()
        assert running.error is not None
        assert running.error.status == 503

    play(run, Limits(grace_seconds=0.05))


def test_results_are_forgotten() -> None:
    async def run(queue: Queue, _: StandIn) -> None:
        jobs = [await queue.finished(submit(queue, f"walk {k}")) for k in range(4)]
        assert queue.find(jobs[3].id) is jobs[3]
        with pytest.raises(Problem, match="no job"):
            queue.find(jobs[1].id)

    play(run, Limits(kept_jobs=2), gate=False)


def test_an_answer_that_cannot_be_written_fails_alone() -> None:
    def broken(_: Result) -> None:
        raise OSError("disk full")

    async def run(queue: Queue, pipe: StandIn) -> None:
        bad, good = queue.submit(Generation("a walk", seconds=2), broken), submit(queue, "walk")
        assert pipe.gate is not None
        pipe.gate.set()
        assert (await queue.finished(good)).answer == ("walk", 0)
        with pytest.raises(Problem) as caught:
            await queue.finished(bad)
        assert caught.value.status == 500

    play(run)


def test_batched_equals_alone() -> None:
    pipe = ar.untrained()
    seeds = [3, 4, 5]
    alone = pipe("a person walks", seconds=2, seed=4).motion.joints

    async def run() -> list[Any]:
        queue = Queue(pipe, Limits())
        queue.start()
        works = [Generation("a person walks", seconds=2, seed=seed) for seed in seeds]
        jobs = [queue.submit(work, lambda result: result.motion.joints) for work in works]
        answers = [(await queue.finished(job)).answer for job in jobs]
        assert queue.batches == 1
        await queue.close()
        return answers

    together = asyncio.run(run())
    assert abs(together[1] - alone).max() < 1e-4
    assert abs(together[0] - alone).max() > 1e-4
