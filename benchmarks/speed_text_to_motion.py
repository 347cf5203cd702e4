"""How fast text becomes motion, against how fast this machine multiplies matrices.

    python benchmarks/speed_text_to_motion.py [--threads 2] [--batch 1 16] [--out speed.json]

Sizes are the shipped ones, weights are random: speed does not depend on what they say. The time that the floating-point
operations alone would take is their number (torch's counter; attention is left out by it, under 3 % here) over the rate
measured on 1024 x 1024 float32 products just before. A busy machine shows in wall time, so the multiple is given in CPU
time too.
"""

import argparse
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from anchorroute import tmd, tokenizer, transformer
from anchorroute.text import Text

TOKENS = 49


def matrix_rate(seconds: float = 1.0) -> tuple[float, float]:
    """Floating-point operations a second in large float32 products, by the clock and by CPU time."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    done, start, busy = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds:
        a @ b
        done += 1
    operations = 2 * 1024**3 * done
    return operations / (time.perf_counter() - start), operations / (time.process_time() - busy)


def pipeline(batch: int, guidance: float, steps: int) -> Callable[[], torch.Tensor]:
    """Encoded texts -> features of 196 frames, all levels."""
    torch.manual_seed(0)
    motion = tokenizer.Tokenizer(tokenizer.open()).eval()
    motion.codebooks.normal_()
    prior = transformer.Transformer(transformer.open()).eval()
    finer = transformer.ResidualTransformer(transformer.residual_open()).eval()
    path = tmd.Path(motion.codebooks[0])
    text = Text(torch.randn(batch, 384), torch.randn(batch, 16, 384), torch.ones(batch, 16, dtype=torch.bool))
    lengths = torch.full((batch,), TOKENS)

    def run() -> torch.Tensor:
        seeds = [torch.Generator().manual_seed(i) for i in range(batch)]
        sampling = tmd.Sampling(guidance)
        z = tmd.sample(prior.predictor(text, None), path, lengths, generators=seeds, steps=steps, sampling=sampling)
        every = tmd.sample_levels(finer.predictor(text, None), motion.embed, z, 6, generators=seeds)
        return motion.decode(motion.embed(every))

    return run


def measure(run: Callable[[], torch.Tensor], rate: tuple[float, float], repeats: int) -> dict[str, float]:
    """Best of `repeats`, in seconds, and as a multiple of the operations' own time."""
    with torch.inference_mode():
        counter = FlopCounterMode(display=False)
        with counter:
            run()
        wall, cpu = [], []
        for _ in range(repeats):
            start, busy = time.perf_counter(), time.process_time()
            run()
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - busy)
    operations = float(counter.get_total_flops())
    return {
        "seconds": min(wall),
        "cpu_seconds": min(cpu),
        "gflop": operations / 1e9,
        "times_matrix_time": min(wall) * rate[0] / operations,
        "times_matrix_cpu_time": min(cpu) * rate[1] / operations,
    }


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--guidance", type=float, default=2.5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = {}
    for batch in chosen.batch:
        rate = matrix_rate()
        figures = measure(pipeline(batch, chosen.guidance, chosen.steps), rate, chosen.repeats)
        rows[f"batch_{batch}"] = {"matrix_gflops": rate[0] / 1e9, "matrix_gflops_by_cpu_time": rate[1] / 1e9} | figures
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    report = {"threads": chosen.threads, "frames": 4 * TOKENS, "peak_memory_mb": peak, **rows}
    text = json.dumps(report, indent=2)
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
