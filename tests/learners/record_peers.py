"""Record what Mammoth's own code makes of `parity_problem`: `python record_peers.py MAMMOTH_CHECKOUT peers.json`.

Nothing of Mammoth is kept but these numbers: the weights after the last step of each task. It needs Mammoth's own
packages (torchvision, kornia, quadprog); packages that none of these methods uses are replaced by dummies.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from parity_problem import BATCH, CLASSES, LOT, RATE, Network, known_logits, problem, views_of, weights_of

SETTINGS = {
    "er_ace": {"use_custom_classifier": False, "task_free": False},
    "der": {"alpha": 0.3},
    "derpp": {"alpha": 0.3, "beta": 0.5},
    "xder": {
        "alpha": 0.6,
        "beta": 0.9,
        "gamma": 0.85,
        "simclr_temp": 5.0,
        "simclr_batch_size": 16,
        "simclr_num_aug": 3,
        "lambd": 0.5,
        "constr_eta": 0.3,
        "constr_margin": 0.5,
        "dp_weight": 0.0,
        "past_constraint": 0,
        "future_constraint": 1,
        "align_bn": 0,
    },
    "agem": {},
    "gem": {"gamma": 0.5},
    "si": {"c": 0.5, "xi": 1.0},
    "ewc_on": {"e_lambda": 15.0, "gamma": 0.7},
    "lwf": {"alpha": 1.0, "softmax_temp": 2.0, "n_epochs": 0},
    "lwf_mc": {"wd_reg": 1e-5},
    "icarl": {"opt_wd": 1e-5, "optim_wd": 0, "use_original_icarl_transform": 0, "compute_theoretical_best": 0},
}


class Given:
    """A buffer that gives the draws of the problem, one after the other, and keeps nothing."""

    def __init__(self) -> None:
        self.rows: list[torch.Tensor] = []
        self.columns: tuple[str, ...] = ()
        self.filled = 0
        self.logits, self.task_labels = problem().logits, problem().tasks.clone()
        self.buffer_size, self.device = len(self.logits), "cpu"

    def is_empty(self) -> bool:
        return self.filled == 0

    def __len__(self) -> int:
        return self.filled

    def add_data(self, *args: object, **kwargs: object) -> None:
        pass

    def get_data(self, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        p, slots = problem(), self.rows.pop(0)
        return tuple(
            {"x": p.memory, "y": p.labels, "z": self.logits, "t": p.tasks, "i": torch.arange(24)}[c][slots]
            for c in self.columns
        )


class Unweighted:
    """torch, but for `exp`, which is 1."""

    exp = staticmethod(torch.ones_like)

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)


COLUMNS = {"er_ace": "xy", "der": "xz", "derpp": "xyz", "xder": "ixyzt", "agem": "xy", "gem": "xyt"}


def record(name: str, module: str, kind: str) -> list[list[float]]:
    from backbone import MammothBackbone

    class Net(MammothBackbone):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Network()
            self.classifier = self.inner.head

        def forward(self, x: torch.Tensor, returnt: str = "out") -> torch.Tensor:
            return self.inner.features(x) if returnt == "features" else self.inner(x)

        def parameters(self, recurse: bool = True):
            return self.inner.parameters(recurse)

    args = Namespace(
        lr=RATE, optimizer="sgd", optim_wd=0.0, optim_mom=0.0, optim_nesterov=False, optim_kwargs={}, label_perc=1,
        batch_size=BATCH, minibatch_size=8, buffer_size=24, device="cpu", dataset="none", debug_mode=0, nowand=1,
    )  # fmt: skip
    vars(args).update(SETTINGS[name])
    data = MagicMock(N_CLASSES=CLASSES, N_TASKS=3, N_CLASSES_PER_TASK=2, SETTING="class-il", SIZE=(4, 4))
    cls = getattr(__import__(f"models.{module}", fromlist=["x"]), kind)
    if name == "lwf_mc":
        sys.modules["models.lwf_mc"].get_dataset = lambda args: data
    method = cls(Net(), F.cross_entropy, args, None, dataset=data)
    method.net.train()
    buffer = method.buffer = Given()
    buffer.columns = tuple(COLUMNS.get(name, "xy"))
    if name == "xder":
        count = args.simclr_num_aug
        buffer.logits = known_logits()
        method.update_counter = torch.zeros(24)
        method.gpu_augmentation = lambda rows: views_of(rows[::count], count).flatten(0, 1)
        torch.rand_like = lambda x: torch.full_like(x, LOT)
    if name == "ewc_on":  # its Fisher information weighs each row by its probability: not so here
        sys.modules["models.ewc_on"].torch = Unweighted()
    found = []
    for task, steps in enumerate(problem().steps):
        method._current_task = task
        method._n_past_classes, method._n_seen_classes = 2 * task, 2 * task + 2
        buffer.filled = 12 * task
        old = copy.deepcopy(method.net).eval()
        if name == "xder":
            method.update_counter.zero_()
        if name == "gem" and task:
            method.grads_cs.append(torch.zeros(sum(method.grad_dims)))
        if name == "icarl" or name == "lwf_mc":
            method.old_net = old
        for step in steps:
            whole = torch.arange(buffer.filled)
            buffer.rows = [whole] if name == "gem" else [step.first, step.second, torch.cat([step.first, step.second])]
            extra = {}
            if name == "lwf":
                extra["logits"] = old(step.rows).detach() if task else None
            rows, labels = step.rows, step.labels
            if name == "icarl" and task:  # there exemplars are rows of the loader, like any other
                p = problem()
                rows, labels = torch.cat([rows, p.memory[step.first]]), torch.cat([labels, p.labels[step.first]])
            method.observe(rows, labels, rows, epoch=0, **extra)
        if name in ("si", "ewc_on"):
            data.train_loader = [(step.rows, step.labels) for step in steps]
            method.end_task(data)
        found.append([float(f"{w:.7g}") for w in weights_of(method.net.inner).tolist()])
    return found


def main() -> None:
    checkout, out = sys.argv[1:]
    sys.path.insert(0, checkout)
    import open_clip

    # some backbone, not used here, fetches weights when it is imported
    for name in ("create_model", "create_model_and_transforms", "create_model_from_pretrained"):
        setattr(open_clip, name, lambda *a, **k: (MagicMock(),) * 3)
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    kinds = {"er_ace": "ErACE", "der": "Der", "derpp": "Derpp", "xder": "XDer", "agem": "AGem", "gem": "Gem",
             "si": "SI", "ewc_on": "EwcOn", "lwf": "Lwf", "lwf_mc": "LwFMC", "icarl": "ICarl"}  # fmt: skip
    weights = {}
    for name, kind in kinds.items():
        try:
            weights[name] = record(name, name, kind)
        except Exception as error:
            print(name, "failed:", repr(error)[:300])
            if "-v" in sys.argv:
                raise
    document = {
        "peer": "aimagelab/mammoth",
        "commit": commit,
        "torch": torch.__version__,
        "settings": SETTINGS,
        "weights": weights,
    }
    Path(out).write_text(json.dumps(document))
    print({name: (len(w), round(sum(w[-1]), 6)) for name, w in weights.items()})


if __name__ == "__main__":
    main()
