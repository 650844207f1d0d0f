"""torchrun --nproc-per-node 8 run.py"""

from minigpt import Config, train

if __name__ == "__main__":
    train(Config(max_steps=4, accumulate=2))
