"""A training in two processes: `torchrun --nproc-per-node=2 transformers_ddp.py FOLDER`. See test_transformers.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from plugins.test_transformers import language_model, texts, trainer

import wane
from wane.plugins.transformers import HistoryCallback

if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    callback = HistoryCallback(wane.History(names=["a", "b"], kind="domain"), folder=folder / "run")
    test = {"a": texts(7, 1), "b": texts(5, 2, lengths=(15, 22))}
    fit = trainer(language_model(), callback, folder, texts(16, 0), test, per_device_eval_batch_size=2)
    fit.train()
    fit.save_model(folder / "model")
