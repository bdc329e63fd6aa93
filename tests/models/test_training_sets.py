from __future__ import annotations

import pytest

from curate.models.training_sets import trained_on_imagenet_1k_alone, trained_on_imagenet_21k


@pytest.mark.parametrize(
    ("name", "trained"),
    [
        ("timm/vit_base_patch16_224.augreg_in21k_ft_in1k", True),
        ("timm/convnext_base.fb_in22k_ft_in1k", True),
        ("timm/convnext_nano.in12k_ft_in1k", True),
        ("timm/beit_base_patch16_224.in22k_ft_in22k_in1k", True),
        ("timm/tf_efficientnetv2_m.in21k_ft_in1k", True),
        ("timm/vit_base_patch16_clip_224.laion2b_ft_in12k_in1k", True),
        ("timm/eva02_large_patch14_448.mim_m38m_ft_in1k", True),
        ("timm/resnet50.a1_in1k", False),
        ("timm/vit_base_patch16_224.augreg_in1k", False),
        ("torchvision/resnet50:IMAGENET1K_V1", False),
        ("lite/efficientnet_lite0", False),
        ("checkpoint/x.safetensors?arch=timm/resnet50", None),
        ("checkpoint/x.safetensors?arch=timm/convnext_base.fb_in22k_ft_in1k", True),
        ("predictions.parquet", None),
    ],
)
def test_the_tag_tells(name: str, trained: bool | None) -> None:
    assert trained_on_imagenet_21k(name) is trained


def test_every_tag_of_timm_that_names_such_a_set_is_known() -> None:
    import timm

    names = [name for name in timm.list_models(pretrained=True) if "in1k" in name]
    found = {name for name in names if trained_on_imagenet_21k(f"timm/{name}")}
    words = ("21k", "22k", "12k", "m30m", "m38m")
    named = {name for name in names if any(word in name for word in words)}
    assert found == named
    assert len(found) > 100


@pytest.mark.parametrize(
    ("name", "alone"),
    [
        ("timm/resnet50.a1_in1k", True),
        ("resnet50.a1_in1k 288", True),
        ("deit_base_distilled_patch16_224.fb_in1k", True),
        ("timm/beitv2_large_patch16_224.in1k_ft_in1k", True),
        ("lite/efficientnet_lite0", True),
        ("torchvision/resnet50:IMAGENET1K_V2", True),
        ("torchvision/vit_b_16:IMAGENET1K_SWAG_E2E_V1", False),
        ("timm/convnext_base.fb_in22k_ft_in1k", False),
        ("beitv2_large_patch16_224.in1k_ft_in22k_in1k", False),
        ("tf_efficientnet_l2.ns_jft_in1k", False),
        ("vit_base_patch16_clip_224.openai_ft_in1k", False),
        ("resnext50_32x4d.fb_ssl_yfcc100m_ft_in1k", False),
        ("resnet50", None),
        ("predictions.parquet", None),
        ("checkpoint/x.safetensors?arch=timm/resnet50.a1_in1k", None),
    ],
)
def test_a_name_tells_whether_other_photos_were_seen(name: str, alone: bool | None) -> None:
    assert trained_on_imagenet_1k_alone(name) is alone
