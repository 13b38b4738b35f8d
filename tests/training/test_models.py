"""Claims about the models: the paper's parameter counts, shapes, seeds, and mismatches that are refused."""

import pytest
import torch
from torch import nn

from adaquantfl.training.catalogue import MODELS
from adaquantfl.training.models import build


@pytest.mark.parametrize(("name", "d"), [("cnn", 1_663_370), ("resnet18", 11_181_642), ("mlp", 25_450)])
def test_model_has_the_papers_number_of_parameters(name: str, d: int) -> None:
    assert sum(parameter.numel() for parameter in build(name, 0).parameters()) == d


@pytest.mark.parametrize("name", list(MODELS))
def test_model_maps_pictures_to_ten_scores_and_trains(name: str) -> None:
    model = build(name, 0)
    scores = model(torch.zeros(2, *MODELS[name]))
    assert scores.shape == (2, 10)
    nn.functional.cross_entropy(scores, torch.tensor([1, 2])).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_cnn_pools_before_it_rectifies() -> None:
    kinds = [type(layer).__name__ for layer in build("cnn", 0).children()]
    assert kinds[:6] == ["Conv2d", "MaxPool2d", "ReLU"] * 2


def test_resnet_shrinks_as_on_imagenet() -> None:
    # 224 -> 112 (stem) -> 56 (pool) -> 56, 28, 14, 7: table 1 of the ResNet paper, at a quarter of the width.
    model = build("resnet18", 0).eval()
    x = torch.zeros(1, 3, 224, 224)
    sides = []
    with torch.no_grad():
        for layer in list(model.children())[:12]:
            x = layer(x)
            sides.append(x.shape[-1])
    assert sides == [112, 112, 112, 56, 56, 56, 28, 28, 14, 14, 7, 7]


@pytest.mark.parametrize("name", list(MODELS))
def test_the_same_seed_gives_the_same_weights(name: str) -> None:
    torch.manual_seed(1)
    first = build(name, 3).state_dict()
    torch.manual_seed(2)
    second = build(name, 3).state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[key], second[key]) for key in first)
    other = build(name, 4).state_dict()
    assert any(not torch.equal(first[key], other[key]) for key in first)
