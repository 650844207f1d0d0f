from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    vocab_size: int = 40
    n_embd: int = 24
    n_layer: int = 2
    block_size: int = 10
    batch_size: int = 3
    max_steps: int = 100
    accumulate: int = 1
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.95)
    checkpoint: str = "minigpt.pt"
