#!/usr/bin/env python3
"""ExecuTorch's TextLLMRunner behind the protocol of benches/forward_speed/peer.rs.

Usage: executorch_runner.py PROGRAM TOKENIZER THREADS, with `executorch` and `torch` installed. It is the whole runner
with its custom operators, as its users have it from Python.
"""

import json
import os
import sys
import time

# Custom operators ask OpenMP for threads, delegates ExecuTorch's pool: both get the same number. One left at its default
# makes the other wait.
os.environ["OMP_NUM_THREADS"] = sys.argv[3]

import torch  # noqa: F401, the libraries below are linked against it
from executorch.extension.pybindings import portable_lib
from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401, registers llama::custom_sdpa and others
from executorch.kernels import quantized  # noqa: F401, registers the embedding of packed codes
from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner


def now():
    """Seconds, by the clock and of the processor."""
    return time.perf_counter(), time.process_time()


def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024


def main():
    program, tokenizer, threads = sys.argv[1:]
    portable_lib._unsafe_reset_threadpool(int(threads))
    runner = TextLLMRunner(program, tokenizer)
    for line in sys.stdin:
        new, _, text = line.rstrip("\n").split("\t")
        config = GenerationConfig(echo=False, max_new_tokens=int(new), temperature=0.0, num_bos=0, num_eos=0)
        times, stats = [], []
        runner.reset()
        begin = now()
        runner.generate(text, config, lambda piece: times.append(now()), stats.append)
        first, last = times[0], times[-1]
        answer = {
            "prompt": stats[-1].num_prompt_tokens,
            "tokens": len(times),
            "prefill": [first[0] - begin[0], first[1] - begin[1]],
            "decode": [last[0] - first[0], last[1] - first[1]],
            "peak": peak_bytes(),
        }
        # The runner prints the text, without an end of line.
        print("\n" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
