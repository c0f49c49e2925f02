"""AlexNet as the Ray example had it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lockstep.errors import UserError
from lockstep.models.alexnet import ResponseNorm, alexnet
from tests.models.networks import build_meta


def test_it_has_the_parameters_of_the_original() -> None:
    """F31 F33: 62,378,344 for 1000 classes, 4,097 more for the background."""
    with torch.device("meta"):
        networks = [alexnet(classes, (3, 224, 224)) for classes in (1000, 1001)]
    counts = [sum(parameter.numel() for parameter in network.parameters()) for network in networks]
    assert counts == [62_378_344, 62_378_344 + 4097]


def test_its_maps_have_the_sizes_of_the_paper() -> None:
    """F31: 55, 27, 27, 13, 13, 13, 13, 6."""
    with torch.device("meta"):
        network, image = alexnet(10, (3, 224, 224)), torch.empty(1, 3, 224, 224)
        assert isinstance(network, nn.Sequential)
        sides = {}
        for name, layer in network.named_children():
            image = layer(image)
            sides[name] = tuple(image.shape[1:])
    assert sides["conv1"] == (96, 55, 55)
    assert sides["pool1"] == (96, 27, 27)
    assert sides["conv2"] == (256, 27, 27)
    assert sides["pool2"] == (256, 13, 13)
    assert sides["conv5"] == (256, 13, 13)
    assert sides["pool5"] == (256, 6, 6)
    assert sides["flatten"] == (9216,)
    assert sides["fc8"] == (10,)


def test_its_parts_are_those_of_the_original() -> None:
    """F31: tanh and dropout of one half in the dense layers."""
    network = build_meta("alexnet", side=224)
    kinds = {name: type(layer) for name, layer in network.named_children()}
    assert [kinds["tanh6"], kinds["tanh7"]] == [nn.Tanh, nn.Tanh]
    assert [layer.p for layer in network.modules() if isinstance(layer, nn.Dropout)] == [0.5, 0.5]
    assert [name for name, kind in kinds.items() if kind is ResponseNorm] == ["norm1", "norm2"]


def test_response_normalisation_is_that_of_torch() -> None:
    """F31: values and gradients; torch's alpha is divided by the number of channels."""
    ours = (30 * torch.randn(2, 7, 5, 4, generator=torch.Generator().manual_seed(0))).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    found, expected = ResponseNorm()(ours), nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)(theirs)
    torch.testing.assert_close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize(("side", "inputs"), [(7, 256), (32, 256), (63, 256), (96, 1024), (224, 9216)])
def test_smaller_images_have_smaller_maps(side: int, inputs: int) -> None:
    network = alexnet(3, (3, side, side), dense=8)
    assert isinstance(network, nn.Sequential)
    assert network.get_submodule("fc6").in_features == inputs
    assert network(torch.zeros(2, 3, side, side)).shape == (2, 3)


def test_images_that_are_too_small_are_refused() -> None:
    with pytest.raises(UserError, match="at least 7 x 7 pixels, not 6 x 6"):
        alexnet(10, (3, 6, 6))
