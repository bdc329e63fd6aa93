from __future__ import annotations

import pytest

from curate.models.families import family_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("lite/efficientnet_lite0", "efficientnet"),
        ("timm/tf_efficientnet_lite2", "efficientnet"),
        ("torchvision/efficientnet_b0", "efficientnet"),
        ("torchvision/mobilenet_v2", "efficientnet"),
        ("timm/mobilenetv2_100.ra_in1k", "efficientnet"),
        ("torchvision/mobilenet_v3_small", "mobilenetv3"),
        ("timm/mobilenetv3_small_100", "mobilenetv3"),
        ("torchvision/inception_v3", "inception_v3"),
        ("torchvision/maxvit_t", "maxxvit"),
        ("timm/inception_v3.tf_in1k", "inception_v3"),
        ("torchvision/resnet50:IMAGENET1K_V1", "resnet"),
        ("timm/resnet50.a1_in1k", "resnet"),
        ("resnext101_32x8d.fb_wsl_ig1b_ft_in1k 224", "resnet"),
        ("checkpoint/x.pt?arch=torchvision/wide_resnet50_2&labels=imagenet-a", "resnet"),
        ("torchvision/vit_b_16", "vision_transformer"),
        ("vit_base_patch16_224", "vision_transformer"),
        ("MyNet_50", "mynet"),
        ("checkpoint/folder/net2.safetensors", "net"),
        ("", ""),
    ],
)
def test_relatives_are_in_one_family_whatever_library_has_them(name: str, family: str) -> None:
    assert family_of(name) == family
