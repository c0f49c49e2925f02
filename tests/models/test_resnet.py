"""ImageNet ResNets: sizes, the same arithmetic as torchvision's and timm's, and the options."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from lockstep.models import preactivation
from lockstep.models.resnet import Basic, Bottleneck
from lockstep.recipes import RECIPES
from lockstep.settings import with_settings
from tests.models.networks import build, build_meta, images, num_parameters, stages, with_random_norms


@pytest.mark.parametrize(
    ("depth", "version", "parameters"),
    [
        (18, 1, 11_689_512),
        (34, 1, 21_797_672),
        (50, 1, 25_557_032),
        (101, 1, 44_549_160),
        (152, 1, 60_192_808),
        (200, 1, 64_673_832),
        (18, 2, 11_687_720),
        (34, 2, 21_795_880),
        (50, 2, 25_549_352),
        (101, 2, 44_541_480),
        (152, 2, 60_185_128),
        (200, 2, 64_666_152),
    ],
)
def test_parameters_are_as_published(depth: int, version: int, parameters: int) -> None:
    """F29: v1 in torchvision's table of weights (num_params), 200 layers as timm's `resnet200`; v2 as timm's
    `resnetv2_18` to `resnetv2_152`; 200 layers of v2 are 7,680 fewer than of v1, as at 50, 101 and 152."""
    assert num_parameters("resnet", 1000, depth=depth, version=version) == parameters


LAYERS = ("layer1", "layer2", "layer3", "layer4")


def published(depth: int, side: int, count: int = 2) -> list[tuple[int, ...]]:
    """The sizes of He et al. 2015, table 1: a quarter of the side, then half of it in every stage."""
    wider = 1 if depth < 50 else 4
    return [*((count, wider * 64 * 2**n, side // 2 ** (n + 2), side // 2 ** (n + 2)) for n in range(4)), (count, 1000)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("depth", [18, 34, 50, 101, 152, 200])
def test_every_depth_takes_images_of_224_pixels_through_the_stages_of_the_paper(depth: int, version: int) -> None:
    """F29."""
    network = build_meta("resnet", 1000, side=224, depth=depth, version=version)
    assert stages(network, images(2, 224).to("meta"), LAYERS) == published(depth, 224)


@pytest.mark.parametrize(
    ("depth", "version", "side"), [(18, 1, 224), (34, 2, 64), (101, 1, 32), (101, 2, 32), (152, 1, 32), (200, 2, 32)]
)
def test_deep_ones_compute_finite_logits(depth: int, version: int, side: int) -> None:
    """F29: in real arithmetic; one of them at 224 pixels."""
    network = build("resnet", 1000, side=side, depth=depth, version=version)
    assert stages(network, images(2, side), LAYERS) == published(depth, side)


@pytest.mark.parametrize("depth", [18, 50])
def test_v1_computes_what_torchvision_does_from_the_same_weights(depth: int, torchvision: ModuleType) -> None:
    """F29: names, shapes and results."""
    network = with_random_norms(build("resnet", depth=depth, side=64)).eval()
    theirs = getattr(torchvision.models, f"resnet{depth}")(num_classes=10).eval()
    theirs.load_state_dict(network.state_dict())
    # The order of additions depends on the threads, and so on what ran before in this process.
    torch.testing.assert_close(network(images(2, 64)), theirs(images(2, 64)), rtol=1e-4, atol=1e-4)


def test_v2_computes_what_timm_does_from_the_same_weights(timm: ModuleType) -> None:
    """F29: the tensors come in the same order, but that timm has the projection of a unit before its norms."""
    network = with_random_norms(build("resnet", depth=50, version=2, side=64)).eval()
    theirs = timm.create_model("resnetv2_50", num_classes=10).eval()
    ours = network.state_dict()
    with torch.no_grad():
        for name, tensor in theirs.state_dict().items():
            tensor.copy_(ours[our_name(name)].reshape(tensor.shape))
    torch.testing.assert_close(network(images(2, 64)), theirs(images(2, 64)), rtol=1e-4, atol=1e-4)


def our_name(name: str) -> str:
    """`stages.0.blocks.1.norm2.bias` -> `layer1.1.norms.1.bias`."""
    if not name.startswith("stages."):
        return name.replace("stem.conv", "conv1").replace("head.fc", "fc")
    _, stage, _, unit, module, *_, leaf = name.split(".")
    kind, number = ("shortcut", "") if module == "downsample" else (module[:-1], f".{int(module[-1]) - 1}")
    return f"layer{int(stage) + 1}.{unit}.{ {'norm': 'norms', 'conv': 'convolutions'}.get(kind, kind) }{number}.{leaf}"


@pytest.mark.parametrize(("stem", "side"), [("imagenet", 1), ("cifar", 4)])
@pytest.mark.parametrize("version", [1, 2])
def test_50_layers_work_at_32_x_32_with_either_stem(stem: str, side: int, version: int) -> None:
    """F30: what is left of the image before the average; H has the large stem, which leaves one pixel."""
    network = build("resnet", depth=50, stem=stem, version=version).eval()
    left: list[torch.Size] = []
    network.get_submodule("avgpool").register_forward_pre_hook(lambda _, inputs: left.append(inputs[0].shape))
    assert network(images(2)).shape == (2, 10)
    assert left == [(2, 2048, side, side)]


def test_50_layers_for_10_classes_have_the_size_of_keras_without_its_biases() -> None:
    """F30: keras.applications.ResNet50(weights=None, classes=10), which H trains, has 23,555,082 trainable variables.
    It gives each of its 53 convolutions a bias, 26,560 numbers that the norm behind them takes away again. The recipe
    says how to have this network."""
    keras = with_settings(RECIPES["resnet50-horovod-cifar10"](), ["model.stem=imagenet", "model.stride_in=1x1"])
    assert num_parameters("resnet", 10, **keras.model.options) == 23_555_082 - 26_560


def strides(network: nn.Module) -> dict[str, int]:
    return {n: m.stride[0] for n, m in network.named_modules() if isinstance(m, nn.Conv2d) and m.stride[0] > 1}


def test_the_stride_of_a_bottleneck_is_where_it_is_wanted() -> None:
    """F29: v1 has it in the first 1 x 1 convolution, v1.5 in the 3 x 3."""
    second, first = build_meta("resnet", depth=50), build_meta("resnet", depth=50, stride_in="1x1")
    stages = ("layer2.0", "layer3.0", "layer4.0")
    shortcuts = [f"{stage}.downsample.0" for stage in stages]
    assert set(strides(second)) == {"conv1", *shortcuts, *(f"{stage}.conv2" for stage in stages)}
    assert set(strides(first)) == {"conv1", *shortcuts, *(f"{stage}.conv1" for stage in stages)}


@pytest.mark.parametrize(("depth", "version"), [(18, 1), (50, 1), (18, 2), (50, 2)])
def test_with_zero_init_every_unit_starts_as_its_shortcut_and_learns(depth: int, version: int) -> None:
    """F29: the result of the convolutions is zero, their gradient is not."""
    network = build("resnet", depth=depth, version=version, stem="cifar", zero_init=True)
    unit = network.get_submodule("layer1.1")
    assert isinstance(unit, Basic | Bottleneck | preactivation.Unit)
    seen: list[tuple[Tensor, Tensor]] = []
    unit.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0].detach(), output.detach())))
    network(images(2, 8)).square().sum().backward()
    assert torch.equal(*seen[0])
    last = {Basic: "bn2", Bottleneck: "bn3", preactivation.Unit: f"convolutions.{1 if depth == 18 else 2}"}[type(unit)]
    weight = unit.get_submodule(last).weight
    assert isinstance(weight, nn.Parameter)
    assert weight.grad is not None
    assert weight.grad.any()
    other = build("resnet", depth=depth, version=version, stem="cifar").get_submodule("layer1.1")
    assert other.get_submodule(last).weight.any()  # type: ignore[operator]
