"""Models: exact sizes, shapes, seeds, and errors that help."""

import sys

import pytest
import torch
from torch import nn

from wane.models import MODELS, build_model, cnn, find_model, mlp, resnet18, seeded


def size(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def resnet18_by_hand(w: int, classes: int, channels: int, kernel: int) -> int:
    def conv(i, o, k):
        return i * o * k * k

    def norm(c):
        return 2 * c

    stem = conv(channels, w, kernel) + norm(w)
    first = 4 * (conv(w, w, 3) + norm(w))

    def stage(i, o):
        main = conv(i, o, 3) + 3 * conv(o, o, 3) + 4 * norm(o)
        return main + conv(i, o, 1) + norm(o)

    return stem + first + stage(w, 2 * w) + stage(2 * w, 4 * w) + stage(4 * w, 8 * w) + 8 * w * classes + classes


def test_resnet18_has_the_size_computed_by_hand():
    # stem 1,856; stages 147,968 + 525,568 + 2,099,712 + 8,393,728; head 51,300
    assert 1_856 + 147_968 + 525_568 + 2_099_712 + 8_393_728 + 51_300 == 11_220_132
    assert size(resnet18(100)) == resnet18_by_hand(64, 100, 3, 3) == 11_220_132


@pytest.mark.parametrize("width", [8, 20])
@pytest.mark.parametrize(("stem", "kernel"), [("cifar", 3), ("imagenet", 7)])
@pytest.mark.parametrize("channels", [1, 3])
def test_resnet18_size_at_any_width_and_stem(width, stem, kernel, channels):
    assert size(resnet18(7, width, stem, channels)) == resnet18_by_hand(width, 7, channels, kernel)


def test_torchvision_agrees_on_the_imagenet_stem():
    models = pytest.importorskip("torchvision.models")
    assert size(resnet18(1000, stem="imagenet")) == size(models.resnet18())


def test_cnn_and_mlp_sizes_by_hand():
    convolutions = 9 * (3 * 32 + 32 * 64 + 64 * 128) + 2 * (32 + 64 + 128)
    assert size(cnn(100)) == convolutions + 512 * 100 + 100
    assert size(mlp(10, 64, (20, 30))) == 64 * 20 + 20 + 20 * 30 + 30 + 30 * 10 + 10
    assert size(mlp(10, 64, ())) == 64 * 10 + 10


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 16), (3, 32, 32), (1, 28, 28), (2, 9, 13), (3, 64, 64)])
def test_forward_is_head_of_features_at_any_image_shape(name, shape):
    options = {"width": 4} if name != "mlp" else {}
    model = build_model(name, 11, shape, **options).eval()
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    features = model.features(x)
    assert features.shape == (5, model.head.in_features)
    assert isinstance(model.head, nn.Linear)
    assert model(x).shape == (5, 11)
    torch.testing.assert_close(model(x), model.head(features), rtol=0, atol=0)


@pytest.mark.parametrize("name", [name for name, row in MODELS.items() if row.channels_last])
def test_channels_last_gives_the_same_logits(name):
    model = build_model(name, 5, (3, 16, 16), width=4).eval()
    x = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    expected = model(x)
    model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(x.to(memory_format=torch.channels_last)), expected, rtol=1e-4, atol=1e-5)


def test_the_cifar_stem_keeps_the_resolution_and_the_imagenet_stem_quarters_it():
    x = torch.zeros(1, 3, 32, 32)
    seen = []
    for stem, first_block in (("cifar", 3), ("imagenet", 4)):
        model = resnet18(2, 4, stem).eval()
        model.body[first_block].register_forward_hook(lambda m, i, o: seen.append(tuple(o.shape)))
        model(x)
    assert seen == [(1, 4, 32, 32), (1, 4, 8, 8)]


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_a_function_of_the_seed_and_leave_no_trace(name):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    a = build_model(name, 5, (3, 8, 8), seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(10)
    b = build_model(name, 5, (3, 8, 8), seed=3).state_dict()
    c = build_model(name, 5, (3, 8, 8), seed=4).state_dict()
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["head.weight"], c["head.weight"])


def test_seeded_gives_the_generator_back_after_an_error():
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeded(0):
        torch.rand(int(3 / 0))
    assert torch.equal(torch.get_rng_state(), before)


def test_every_parameter_gets_a_gradient():
    for name in MODELS:
        model = build_model(name, 4, (3, 16, 16))
        model(torch.randn(6, 3, 16, 16)).sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            ("resnt18", 10, (3, 8, 8)),
            {},
            "unknown model 'resnt18'; did you mean 'resnet18'.*resnet18, cnn, mlp",
        ),
        (("zzz", 10, (3, 8, 8)), {}, r"unknown model 'zzz'\. Known: resnet18, cnn, mlp"),
        (
            ("cnn", 10, (3, 8, 8)),
            {"widht": 3},
            "unknown option of cnn 'widht'; did you mean 'width'",
        ),
        (("mlp", 10, (3, 8, 8)), {"width": 3}, r"unknown option of mlp 'width'\. Known: hidden"),
        (("mlp", 10, (3, 8, 8)), {"in_features": 3}, "unknown option of mlp 'in_features'"),
        (("cnn", 0, (3, 8, 8)), {}, "num_classes=0"),
        (("cnn", 10, (8, 8)), {}, r"cnn is for images .* image_shape=\(8, 8\): use the mlp"),
        (("resnet18", 10, (12,)), {}, r"resnet18 is for images .* image_shape=\(12,\): use the mlp"),
        (("mlp", 10, ()), {}, r"image_shape=\(\)"),
        (("h2_none:make", 10, (12,)), {}, "no module 'h2_none'"),
        (("resnet18", 10, (3, 8, 8)), {"stem": "big"}, "stem is 'big'.*cifar.*imagenet"),
    ],
)
def test_errors_quote_and_help(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        build_model(*arguments, **options)


@pytest.mark.parametrize("shape", [(12,), (3, 4), (2, 3, 4, 5)])
def test_the_mlp_takes_rows_of_any_shape(shape):
    assert build_model("mlp", 7, shape, hidden=(5,))(torch.randn(4, *shape)).shape == (4, 7)


MAKER = """
from torch import nn

def make(num_classes, shape, seed, hidden=8):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], hidden), nn.ReLU(), nn.Linear(hidden, num_classes))

def strict(classes, shape):
    return None

def nothing(**options):
    return options
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that offers a model as entry point."""
    (tmp_path / "h2_own_model.py").write_text(MAKER)
    info = tmp_path / "h2_own_model-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: h2-own-model\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wane.models]\nthin = h2_own_model:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    MODELS.pop("thin", None)
    sys.modules.pop("h2_own_model", None)


@pytest.mark.parametrize("name", ["h2_own_model:make", "thin"])
def test_models_of_other_packages_are_a_function_of_the_seed_too(name, package):
    before = torch.get_rng_state()
    a, b, c = (build_model(name, 5, (6,), seed=seed, hidden=4).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert a["1.weight"].shape == (4, 6)
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["1.weight"], c["1.weight"])
    assert not find_model(name).channels_last


def test_functions_that_make_no_model_are_refused(package):
    with pytest.raises(
        ValueError, match=r"does not take num_classes, seed: it must be a function \(num_classes, shape"
    ):
        build_model("h2_own_model:strict", 5, (6,))
    with pytest.raises(ValueError, match=r"returned dict: it must return a torch.nn.Module"):
        build_model("h2_own_model:nothing", 5, (6,))
    with pytest.raises(ValueError, match="unknown option of h2_own_model:make 'hiden'; did you mean 'hidden'"):
        build_model("h2_own_model:make", 5, (6,), hiden=3)
