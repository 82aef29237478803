"""Configs of the encoder, which reads x, and of the decoder, which gives the likelihood's parameters."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from discrete_vae.config.base import ComponentConfig
from discrete_vae.config.numbers import Count


class FlattenEncoderConfig(ComponentConfig):
    """The values of x in one row, as in the paper: the networks of the posterior read x itself."""

    target: ClassVar[str] = "discrete_vae.nets.flatten:FlattenEncoder"
    kind: Literal["flatten"] = "flatten"


class ConvolutionalEncoderConfig(ComponentConfig):
    """A small residual convolutional network for images (channel, row, column)."""

    target: ClassVar[str] = "discrete_vae.nets.convolutional:ConvolutionalEncoder"
    kind: Literal["convolutional"] = "convolutional"
    num_features: Count = Field(default=256, description="Features that the posterior reads.")
    widths: tuple[Count, ...] = Field(
        default=(16, 32, 64), description="Channels after each halving of the image."
    )


EncoderConfig = Annotated[FlattenEncoderConfig | ConvolutionalEncoderConfig, Field(discriminator="kind")]


class MLPDecoderConfig(ComponentConfig):
    """Fully connected; no hidden layer makes it linear, as in the paper (section architecture)."""

    target: ClassVar[str] = "discrete_vae.nets.mlp_decoder:MLPDecoder"
    kind: Literal["mlp"] = "mlp"
    hidden: tuple[Count, ...] = Field(default=(), description="Widths of the decoder's hidden layers.")


class ConvolutionalDecoderConfig(ComponentConfig):
    """A small residual convolutional network for images (channel, row, column)."""

    target: ClassVar[str] = "discrete_vae.nets.convolutional:ConvolutionalDecoder"
    kind: Literal["convolutional"] = "convolutional"
    widths: tuple[Count, ...] = Field(
        default=(16, 32, 64), description="Channels of the images, the largest first."
    )


DecoderConfig = Annotated[MLPDecoderConfig | ConvolutionalDecoderConfig, Field(discriminator="kind")]
