import torch
import torch.nn.functional as F


def distillation_loss(
    logits: torch.Tensor, soft_targets: torch.Tensor, temperature: float
) -> torch.Tensor:
    log_probabilities = F.log_softmax(logits / temperature, dim=-1)
    return F.kl_div(log_probabilities, soft_targets, reduction="batchmean") * temperature**2
