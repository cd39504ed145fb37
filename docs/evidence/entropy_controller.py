"""A policy gradient with an entropy bonus: EntropyController beside constant coefficients. Prints the table of
entropy_controller.md; about three minutes on one thread.

64 prompts have 4 right tokens of 200 each; a policy of one hidden layer learns from rewards of 0 and 1 alone, by the advantage
over the mean of 8 draws (GRPO without clipping).
"""

import argparse
import statistics

import torch

import isentropic.torch as et

PROMPTS, FEATURES, TOKENS, RIGHT, DRAWS, BATCH = 64, 32, 200, 4, 8, 32


def train(seed, coefficient, target, steps, rate):
    """(the entropy and the reward of each step, the last coefficient); target None: the coefficient is constant."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    prompts = torch.randn(PROMPTS, FEATURES, generator=generator)
    right = torch.rand(PROMPTS, TOKENS, generator=generator).argsort(1)[:, :RIGHT]
    policy = torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.Tanh(), torch.nn.Linear(64, TOKENS))
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    controller = None if target is None else et.EntropyController(target, coefficient=coefficient, rate=rate)
    entropies, rewards = [], []
    for _ in range(steps):
        chosen = torch.randint(0, PROMPTS, (BATCH,), generator=generator)
        scores = policy(prompts[chosen])
        tokens = torch.multinomial(scores.detach().softmax(1), DRAWS, replacement=True, generator=generator)
        reward = (tokens.unsqueeze(2) == right[chosen].unsqueeze(1)).any(2).float()
        advantage = reward - reward.mean(1, keepdim=True)
        found = et.token_statistics(scores.unsqueeze(1).expand(-1, DRAWS, -1), tokens)
        entropy = found.entropy.mean()
        loss = -(advantage * found.logprob).mean() - coefficient * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if controller is not None:
            coefficient = controller.update(entropy)
        entropies.append(entropy.item())
        rewards.append(reward.mean().item())
    return entropies, rewards, coefficient


def row(name, runs, target, steps):
    last = slice(steps // 2, steps)
    at = [
        statistics.mean(entropies[step - 1] for entropies, *_ in runs) for step in (steps // 8, steps // 4, steps // 2, steps)
    ]
    away = statistics.mean(abs(entropy - target) for entropies, *_ in runs for entropy in entropies[last])
    reward = statistics.mean(one for _, rewards, _ in runs for one in rewards[-steps // 10 :])
    coefficient = statistics.mean(one for *_, one in runs)
    numbers = " | ".join(f"{one:.2f}" for one in at)
    return f"| {name} | {numbers} | {away:.2f} | {reward:.2f} | {coefficient:.3f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    steps = given.steps
    columns = [f"at {step}" for step in (steps // 8, steps // 4, steps // 2, steps)]
    for target in (1.0, 2.0):
        print(f"Target {target} nats:\n")
        print(f"| coefficient | {' | '.join(columns)} | away from the target | reward | last coefficient |")
        print("|---|" + "---|" * 7)
        for coefficient in (0.0, 0.03, 0.1):
            runs = [train(seed, coefficient, None, steps, None) for seed in range(given.seeds)]
            print(row(f"{coefficient}", runs, target, steps), flush=True)
        for rate in (1e-3, 1e-2):
            runs = [train(seed, 0.0, target, steps, rate) for seed in range(given.seeds)]
            print(row(f"`EntropyController`, rate {rate:g}", runs, target, steps), flush=True)
        print()


if __name__ == "__main__":
    main()
