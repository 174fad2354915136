"""Models: ResNet-18 of any width, a small CNN, an MLP. Any other `nn.Module` works as well.

>>> import torch
>>> model = build_model("cnn", num_classes=10, image_shape=(1, 16, 16), seed=7)
>>> model(torch.zeros(2, 1, 16, 16)).shape
torch.Size([2, 10])
>>> list(MODELS)
['resnet18', 'cnn', 'mlp']
"""

from wane.models.build import MODELS, Model, build_model, find_model
from wane.models.classifier import Classifier, seeded
from wane.models.cnn import cnn
from wane.models.mlp import mlp
from wane.models.resnet import resnet18

__all__ = ["MODELS", "Classifier", "Model", "build_model", "cnn", "find_model", "mlp", "resnet18", "seeded"]
