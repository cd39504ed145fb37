"""Processors without a seed beside those of transformers, each with the draw of a token: one thread, interleaved.

python bench/python_transformers.py   (needs torch and transformers)
"""

import time

import torch
from timing import median_times
from transformers import LogitsProcessorList
from transformers.generation import logits_process as theirs

from isentropic.transformers import sampling

N = 131072
CHAINS = {
    "temperature": ([("temperature", 0.8)], [theirs.TemperatureLogitsWarper(0.8)]),
    "min_p": ([("min_p", 0.05)], [theirs.MinPLogitsWarper(0.05)]),
    "epsilon": ([("epsilon", 3e-4)], [theirs.EpsilonLogitsWarper(3e-4)]),
    "temperature, min_p": (
        [("temperature", 0.8), ("min_p", 0.05)],
        [theirs.TemperatureLogitsWarper(0.8), theirs.MinPLogitsWarper(0.05)],
    ),
    "temperature, top_k, top_p": (
        [("temperature", 0.8), ("top_k", 50), ("top_p", 0.95)],
        [theirs.TemperatureLogitsWarper(0.8), theirs.TopKLogitsWarper(50), theirs.TopPLogitsWarper(0.95)],
    ),
}


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ids = torch.zeros((1, 5), dtype=torch.int64)
    print("| steps | scores | isentropic, us | transformers, us | ratio |\n|---|---|---|---|---|")
    for dtype in (torch.float32, torch.bfloat16):
        scores = (torch.randn(1, N) * 2).to(dtype)
        for name, (steps, warpers) in CHAINS.items():
            given = sampling(steps)
            processors, greedy = LogitsProcessorList(given["logits_processor"]), not given.get("do_sample", True)
            chain = LogitsProcessorList(warpers)

            def ours(processors=processors, greedy=greedy, scores=scores):
                # As generate goes on: it takes float32.
                found = processors(ids, scores.to(torch.float32, copy=True))
                return found.argmax(-1) if greedy else torch.multinomial(torch.softmax(found, -1), 1)

            def other(chain=chain, scores=scores):
                found = chain(ids, scores.to(torch.float32, copy=True))
                return torch.multinomial(torch.softmax(found, -1), 1)

            times = median_times({"ours": ours, "theirs": other}, 31, clock=time.process_time, least=0)
            own, their = (1e6 * times[key] for key in ("ours", "theirs"))
            print(f"| {name} | {str(dtype)[6:]} | {own:.0f} | {their:.0f} | {own / their:.2f} |", flush=True)


if __name__ == "__main__":
    main()
