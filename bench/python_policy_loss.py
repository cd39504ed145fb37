"""A loss of reinforcement learning from the logits of a language model, beside torch: processor time and peak memory.

The loss is that of policy gradients with an entropy bonus, which PPO and GRPO use too: -mean(advantage log p(token)) - 0.01
mean(H). Torch takes log_softmax, exp, gather and a sum, in the type of the logits and in float32; isentropic the numbers of
token_statistics.

python bench/python_policy_loss.py [texts tokens classes type]; each case is a process of its own, on one thread.
"""

import resource
import subprocess
import sys
import time

CASES = "torch", "torch, in float32", "token_statistics"


def run(case, texts, tokens, classes, kind):
    import torch

    import isentropic
    import isentropic.torch as et

    torch.set_num_threads(1)
    isentropic.set_num_threads(1)
    torch.manual_seed(0)
    logits = torch.empty(texts, tokens, classes, dtype=getattr(torch, kind))
    for text in logits:  # one after the other, so that making them leaves no higher peak
        text.normal_(std=3)
    logits.requires_grad_()
    token = torch.randint(0, classes, (texts, tokens))
    advantage = torch.randn(texts, tokens)

    def by_torch():
        log_p = torch.log_softmax(logits, -1, dtype=torch.float32 if case.endswith("float32") else None)
        entropy = -(log_p.exp() * log_p).sum(-1)
        return log_p.gather(-1, token[..., None])[..., 0], entropy

    def ours():
        found = et.token_statistics(logits, token)
        return found.logprob, found.entropy

    def loss():
        log_prob, entropy = (ours if case == CASES[-1] else by_torch)()
        return -(advantage * log_prob).mean() - 0.01 * entropy.mean()

    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    value = loss()
    forward = time.process_time() - begin
    value.backward()
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # The definition, in float64, of the first text.
    with torch.no_grad():
        exact = torch.log_softmax(logits[0].double(), -1)
        p = exact.exp()
        gradient = (p - torch.nn.functional.one_hot(token[0], classes)) * advantage[0, :, None]
        gradient += 0.01 * p * (exact - (p * exact).sum(-1, keepdim=True))
        gradient /= texts * tokens
        off = (logits.grad[0] - gradient).norm() / gradient.norm()
    print(
        f"| {case} | {forward:.2f} | {seconds:.2f} | {(peak - base) / 1024:.0f} | {value.item():.6f} | {off:.1e} |",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) > 5:
        run(sys.argv[5], *map(int, sys.argv[1:4]), sys.argv[4])
    else:
        sizes = sys.argv[1:] or ["8", "512", "32000", "bfloat16"]
        print(" x ".join(sizes[:3]), sizes[3])
        print("| case | forward, s | and backward, s | MiB above the logits | loss | relative error of the gradient |")
        print("|---|---|---|---|---|---|", flush=True)
        for case in CASES:
            subprocess.run([sys.executable, __file__, *sizes, case], check=True)
