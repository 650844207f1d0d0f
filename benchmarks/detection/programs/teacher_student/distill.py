"""Distillation: a frozen teacher and a student, each its own FSDP2 tree."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from losses import distillation_loss
from networks import make_student, make_teacher
from sharding import shard_by_type
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict


class Distiller:
    """Holds both models; only the student's parameters are optimized."""

    def __init__(self, device: torch.device, lr: float, temperature: float) -> None:
        self.device = device
        self.temperature = temperature
        torch.manual_seed(0)
        self.teacher = make_teacher().to(device).eval().requires_grad_(False)
        self.student = make_student().to(device)
        for network in (self.teacher, self.student):
            shard_by_type(network)
        self.optimizer = torch.optim.AdamW(self.student.parameters(), lr=lr)

    @torch.no_grad()
    def soft_targets(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.teacher(x)
        return F.softmax(logits / self.temperature, dim=-1)

    def step(self, micro_batches: list[torch.Tensor]) -> float:
        self.student.train()
        for position, x in enumerate(micro_batches):
            self.student.set_requires_gradient_sync(position + 1 == len(micro_batches))
            targets = self.soft_targets(x)
            student_logits = self.student(x)
            loss = distillation_loss(student_logits, targets, self.temperature)
            (loss / len(micro_batches)).backward()
        nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def state(self) -> dict[str, torch.Tensor]:
        """The student's whole weights, on rank 0; call it on every rank."""
        return get_model_state_dict(
            self.student, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
        )


def random_inputs(count: int, device: torch.device) -> list[torch.Tensor]:
    return [torch.randn(4, 10, device=device) for _ in range(count)]


def main() -> None:
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    distiller = Distiller(device, lr=1e-3, temperature=2.0)
    torch.manual_seed(1 + dist.get_rank())
    for step in range(3):
        loss = distiller.step(random_inputs(2, device))
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss:.4f}")
    student_state = distiller.state()
    if dist.get_rank() == 0:
        torch.save({"student": student_state}, "student.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
