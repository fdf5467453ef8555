# SPDX-License-Identifier: Apache-2.0
"""The tiny models of tests/fixtures: what each is there to show, and its config. make_fixtures.py
makes them.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    BambaConfig,
    BambaForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    GptOssConfig,
    GptOssForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeConfig,
    GraniteMoeForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PixtralVisionConfig,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    SiglipVisionConfig,
)

import fixture_vision

TRANSFORMERS5 = "config in the transformers 5 dialect"
TRANSFORMERS4 = (
    "config in the transformers 4 dialect (config_transformers5.json: the same as transformers 5 "
    "saves it)"
)


@dataclass
class Fixture:
    name: str
    what: str
    config: Any
    model_class: Any
    dtype: torch.dtype
    shards: int = 1
    transformers4_dialect: bool = False
    # Fields that published transformers 4 configs have and transformers 5 saves otherwise; of
    # text_config where there is one.
    transformers4_fields: dict = field(default_factory=dict)
    # How the linear layers of blocks are stored (fixture_quantization.py); None: in dtype.
    quantization: str | None = None
    # Of these layers those that stay in dtype all the same, beside lm_head, as the config of such a
    # quantization says it.
    left_out: tuple[str, ...] = ()
    # Whether the reference rounds what these layers read to E4M3 too, token by token.
    rounds_activations: bool = False
    # Whether the reference has longrope's long factors whatever the length of a sequence.
    long_factors_alone: bool = False
    # Of its random numbers; None: its place in FIXTURES.
    seed_place: int | None = None
    # Of a model with a vision part: how its tensors are named (fixture_vision.py).
    tensor_names: str | None = None

    @property
    def text_config(self):
        """The config of what is run: config itself, or, beside a vision part, that of the text."""
        return self.config if self.tensor_names is None else self.config.text_config


def config_of(config_class, vocab, hidden, intermediate, heads, **fields):
    """A config of two layers and 256 positions. heads: (query heads, key-value heads)."""
    return config_class(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=2,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        max_position_embeddings=256,
        bos_token_id=1,
        eos_token_id=2,
        **fields,
    )


def plain_rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def llama_tiny():
    config = config_of(
        LlamaConfig,
        vocab=199,
        hidden=64,
        intermediate=72,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(10000.0),
        tie_word_embeddings=False,
    )
    what = f"plain Llama: GQA 4/2, untied, odd vocabulary, f32 checkpoint, {TRANSFORMERS5}"
    return Fixture("llama-tiny", what, config, LlamaForCausalLM, torch.float32)


def llama3_rope_bias_tiny():
    # At 32 original positions the 12 frequencies of a head fall on all three branches of the llama3
    # rule.
    config = config_of(
        LlamaConfig,
        vocab=101,
        hidden=72,
        intermediate=40,
        heads=(3, 1),
        head_dim=24,
        rms_norm_eps=1e-6,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        attention_bias=True,
        mlp_bias=True,
        tie_word_embeddings=True,
    )
    what = (
        "Llama with llama3 rope scaling and biases on all projections: MQA 3/1, tied, bf16 "
        "checkpoint in two shards, "
        + TRANSFORMERS4
    )
    return Fixture(
        "llama3-rope-bias-tiny",
        what,
        config,
        LlamaForCausalLM,
        torch.bfloat16,
        shards=2,
        transformers4_dialect=True,
    )


def granite_tiny():
    config = config_of(
        GraniteConfig,
        vocab=67,
        hidden=32,
        intermediate=40,
        heads=(4, 4),
        head_dim=32,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(50000.0),
        embedding_multiplier=2.5,
        attention_multiplier=0.25,
        residual_multiplier=0.6,
        logits_scaling=1.75,
        tie_word_embeddings=False,
    )
    what = (
        "Granite with all four multipliers off their neutral values: MHA 4/4, head_dim 32 that is "
        "not hidden_size / heads, "
        f"untied, f16 checkpoint, {TRANSFORMERS5}"
    )
    return Fixture("granite-tiny", what, config, GraniteForCausalLM, torch.float16)


def mistral_tiny():
    config = config_of(
        MistralConfig,
        vocab=97,
        hidden=32,
        intermediate=40,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(10000.0),
        sliding_window=21,
        tie_word_embeddings=False,
    )
    what = (
        "Mistral with a sliding window of 21 tokens, less than the longer prompts: GQA 4/2, "
        "head_dim 16 that is not "
        f"hidden_size / heads, untied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "mistral-tiny",
        what,
        config,
        MistralForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
    )


def qwen2_tiny():
    config = config_of(
        Qwen2Config,
        vocab=89,
        hidden=36,
        intermediate=40,
        heads=(3, 1),
        rms_norm_eps=1e-6,
        rope_parameters=plain_rope(1000000.0),
        use_sliding_window=False,
        sliding_window=13,
        max_window_layers=1,
        tie_word_embeddings=False,
    )
    what = (
        "Qwen2: biases on q, k and v alone, a sliding_window that is inert because "
        "use_sliding_window is false: MQA 3/1, head_dim "
        f"12 by default, untied, f16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "qwen2-tiny",
        what,
        config,
        Qwen2ForCausalLM,
        torch.float16,
        transformers4_dialect=True,
        transformers4_fields={"sliding_window": 13},
    )


def qwen3_tiny():
    config = config_of(
        Qwen3Config,
        vocab=83,
        hidden=40,
        intermediate=48,
        heads=(4, 2),
        head_dim=24,
        rms_norm_eps=1e-6,
        rope_parameters=plain_rope(1000000.0),
        attention_bias=False,
        use_sliding_window=False,
        sliding_window=None,
        max_window_layers=2,
        tie_word_embeddings=True,
    )
    what = (
        "Qwen3: RMSNorm over every head of q and k before rope: GQA 4/2, head_dim 24 that is not "
        "hidden_size / heads, tied, bf16 "
        f"checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "qwen3-tiny",
        what,
        config,
        Qwen3ForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
    )


def scaled_rope_llama(name, rope_parameters, what, **fixture_fields):
    config = config_of(
        LlamaConfig,
        vocab=61,
        hidden=24,
        intermediate=32,
        heads=(2, 1),
        head_dim=32,
        rms_norm_eps=1e-5,
        rope_parameters=rope_parameters,
        tie_word_embeddings=True,
    )
    return Fixture(name, what, config, LlamaForCausalLM, torch.bfloat16, **fixture_fields)


def linear_rope_tiny():
    return scaled_rope_llama(
        "linear-rope-tiny",
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5},
        f"Llama with linear rope scaling: MQA 2/1, tied, bf16 checkpoint, {TRANSFORMERS5}",
    )


def yarn_rope_tiny():
    # At 64 original positions and these betas the 16 frequencies of a head fall on all three parts
    # of yarn's ramp.
    return scaled_rope_llama(
        "yarn-rope-tiny",
        {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 4.0,
        },
        "Llama with yarn rope scaling, cos and sin scaled by the factor that yarn infers: MQA 2/1, "
        "tied, bf16 checkpoint, "
        + TRANSFORMERS4,
        transformers4_dialect=True,
    )


def ministral_tiny():
    config = config_of(
        MinistralConfig,
        vocab=53,
        hidden=24,
        intermediate=32,
        heads=(2, 1),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(10000.0),
        sliding_window=19,
        layer_types=["full_attention", "sliding_attention"],
        tie_word_embeddings=True,
    )
    what = (
        "Ministral, whose second layer alone slides, by 19 tokens, less than the longer prompts: "
        f"MQA 2/1, tied, bf16 checkpoint, {TRANSFORMERS5}"
    )
    return Fixture("ministral-tiny", what, config, MinistralForCausalLM, torch.bfloat16)


def gemma2_tiny():
    config = config_of(
        Gemma2Config,
        vocab=79,
        hidden=40,
        intermediate=48,
        heads=(4, 2),
        head_dim=24,
        rms_norm_eps=1e-6,
        rope_parameters=plain_rope(10000.0),
        query_pre_attn_scalar=20,
        sliding_window=21,
        attn_logit_softcapping=4.0,
        final_logit_softcapping=3.0,
        tie_word_embeddings=True,
    )
    what = (
        "Gemma 2: norms before and after attention and MLP, their weights around 0, GELU, scaled "
        "embedding, caps on the logits of attention and of the model, a first layer that slides by "
        "21 tokens and a second that does not: GQA 4/2, head_dim 24 that is not hidden_size / "
        f"heads, attention scale of neither, tied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "gemma2-tiny",
        what,
        config,
        Gemma2ForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
        transformers4_fields={"hidden_act": "gelu_pytorch_tanh"},
    )


def gemma3_tiny():
    config = config_of(
        Gemma3TextConfig,
        vocab=71,
        hidden=36,
        intermediate=40,
        heads=(4, 1),
        head_dim=16,
        rms_norm_eps=1e-6,
        rope_parameters={
            "sliding_attention": plain_rope(10000.0),
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        },
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=12,
        sliding_window=19,
        tie_word_embeddings=True,
    )
    what = (
        "Gemma 3, text: Gemma 2 without caps, with RMSNorm over every head of q and k, and a rope "
        "of its own for each kind of layer, linear scaling in the one that does not slide: MQA "
        f"4/1, window of 19 tokens, tied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "gemma3-tiny",
        what,
        config,
        Gemma3ForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
        transformers4_fields={"sliding_window_pattern": 2},
    )


def phi3_tiny():
    config = config_of(
        Phi3Config,
        vocab=77,
        hidden=48,
        intermediate=56,
        heads=(4, 2),
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(10000.0),
        sliding_window=23,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    what = (
        "Phi-3: q, k and v in one tensor, gate and up in another, a sliding window of 23 tokens in "
        f"every layer: GQA 4/2, head_dim 12, untied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "phi3-tiny", what, config, Phi3ForCausalLM, torch.bfloat16, transformers4_dialect=True
    )


def longrope(short_factor, long_factor, **fields):
    return {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": short_factor,
        "long_factor": long_factor,
        **fields,
    }


def phi3_longrope_tiny():
    # cos and sin grow by sqrt(1 + ln(256 / 32) / ln(32)).
    config = config_of(
        Phi3Config,
        vocab=75,
        hidden=48,
        intermediate=56,
        heads=(4, 2),
        rms_norm_eps=1e-5,
        original_max_position_embeddings=32,
        rope_parameters=longrope(
            [1.0, 1.02, 1.15, 1.4, 1.7, 2.3], [1.05, 1.6, 2.4, 3.7, 6.2, 7.9]
        ),
        sliding_window=None,
        pad_token_id=0,
        tie_word_embeddings=False,
    )
    what = (
        "Phi-3 with longrope from 32 to 256 positions, its long factors in sequences of any "
        "length, where transformers has short ones to 32 tokens: GQA 4/2, head_dim 12, untied, "
        f"bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "phi3-longrope-tiny",
        what,
        config,
        Phi3ForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
        long_factors_alone=True,
        seed_place=60,
    )


def phi4_mini_tiny():
    # 12 of the 16 elements of a head turn, and they alone grow by attention_factor.
    config = config_of(
        Phi3Config,
        vocab=81,
        hidden=64,
        intermediate=56,
        heads=(4, 2),
        rms_norm_eps=1e-5,
        original_max_position_embeddings=256,
        rope_parameters=longrope(
            [1.0, 1.1, 1.5, 2.2, 2.9, 4.1],
            [1.2, 2.3, 5.6, 9.8, 14.0, 21.0],
            attention_factor=1.25,
            partial_rotary_factor=0.75,
        ),
        sliding_window=None,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    what = (
        "Phi-4-mini: longrope of 12 of the 16 elements of a head, with an attention_factor, short "
        "factors at all of its positions, q, k and v in one tensor: GQA 4/2, tied, bf16 "
        f"checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "phi4-mini-tiny",
        what,
        config,
        Phi3ForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
        seed_place=61,
    )


def olmo2_tiny():
    config = config_of(
        Olmo2Config,
        vocab=73,
        hidden=48,
        intermediate=40,
        heads=(4, 2),
        rms_norm_eps=1e-6,
        rope_parameters=plain_rope(500000.0),
        tie_word_embeddings=False,
    )
    what = (
        "OLMo 2: norms of attention and MLP after them, before they are added, and RMSNorm over q "
        f"and k as a whole: GQA 4/2, head_dim 12, untied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "olmo2-tiny", what, config, Olmo2ForCausalLM, torch.bfloat16, transformers4_dialect=True
    )


def fp8_llama(
    name,
    quantization,
    what,
    hidden=64,
    intermediate=72,
    rounds_activations=False,
    left_out=(),
    seed_place=None,
):
    config = config_of(
        LlamaConfig,
        vocab=59,
        hidden=hidden,
        intermediate=intermediate,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(10000.0),
        tie_word_embeddings=True,
    )
    return Fixture(
        name,
        f"Llama whose linear layers are E4M3, {what}: GQA 4/2, tied, the rest bf16",
        config,
        LlamaForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
        quantization=quantization,
        rounds_activations=rounds_activations,
        left_out=left_out,
        seed_place=seed_place,
    )


def fp8_tensor_tiny():
    return fp8_llama(
        "fp8-tensor-tiny",
        "tensor",
        "one scale for each weight, static scales of activations, as compressed-tensors names them",
    )


def fp8_channel_tiny():
    return fp8_llama(
        "fp8-channel-tiny",
        "channel",
        "one scale for each output, dynamic scales of activations, as compressed-tensors names them",
    )


def fp8_block_tiny():
    return fp8_llama(
        "fp8-block-tiny",
        "block",
        "one scale for each 128 x 128 block, the last of either way smaller, as quant_method fp8 "
        "names them",
        hidden=160,
        intermediate=144,
    )


def fp8_rounded_tiny():
    return fp8_llama(
        "fp8-rounded-tiny",
        "channel",
        "one scale for each output, and read activations that are rounded to E4M3, one scale for "
        "each token",
        hidden=160,
        intermediate=144,
        rounds_activations=True,
        seed_place=72,
    )


def fp8_modelopt_tiny():
    return fp8_llama(
        "fp8-modelopt-tiny",
        "modelopt",
        "one scale for each weight, static scales of activations, as modelopt names them, but for "
        "the attention of the first layer, which is bf16",
        left_out=("model.layers.0.self_attn*",),
        seed_place=64,
    )


def fp8_fbgemm_tiny():
    return fp8_llama(
        "fp8-fbgemm-tiny",
        "fbgemm",
        "one scale for each output, as fbgemm_fp8 names them, but for the second layer's down, "
        "which is bf16",
        left_out=("model.layers.1.mlp.down_proj",),
        seed_place=65,
    )


def mixtral_tiny():
    config = config_of(
        MixtralConfig,
        vocab=69,
        hidden=32,
        intermediate=24,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(1000000.0),
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=None,
        tie_word_embeddings=False,
    )
    what = (
        "Mixtral: 4 experts in place of the MLP, 2 for each token, weighted by a softmax over "
        f"these two: GQA 4/2, head_dim 16, untied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "mixtral-tiny", what, config, MixtralForCausalLM, torch.bfloat16, transformers4_dialect=True
    )


def qwen3moe_tiny():
    config = config_of(
        Qwen3MoeConfig,
        vocab=67,
        hidden=40,
        intermediate=48,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-6,
        rope_parameters=plain_rope(1000000.0),
        attention_bias=False,
        use_sliding_window=False,
        sliding_window=None,
        moe_intermediate_size=16,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=False,
        decoder_sparse_step=1,
        mlp_only_layers=[0],
        tie_word_embeddings=False,
    )
    what = (
        "Qwen3-MoE: a first layer with an MLP of its own size, a second with 8 experts, 3 for each "
        "token, weighted by a softmax over all 8 that is not normalised again, RMSNorm over every "
        f"head of q and k: GQA 4/2, head_dim 16, untied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "qwen3moe-tiny",
        what,
        config,
        Qwen3MoeForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
    )


def granitemoe_tiny():
    config = config_of(
        GraniteMoeConfig,
        vocab=63,
        hidden=48,
        intermediate=16,
        heads=(4, 2),
        rms_norm_eps=1e-6,
        rope_parameters=plain_rope(10000.0),
        embedding_multiplier=2.5,
        attention_multiplier=0.4,
        residual_multiplier=0.6,
        logits_scaling=1.75,
        num_local_experts=6,
        num_experts_per_tok=2,
        tie_word_embeddings=False,
    )
    what = (
        "Granite-MoE: 6 experts, stored as one tensor for gate and up and one for down, 2 for each "
        "token, weighted by a softmax over these two, all four multipliers off their neutral "
        f"values: GQA 4/2, head_dim 12, untied, f16 checkpoint, {TRANSFORMERS5}"
    )
    return Fixture("granitemoe-tiny", what, config, GraniteMoeForCausalLM, torch.float16)


def int4_llama(name, quantization, what, seed_place, left_out=()):
    config = config_of(
        LlamaConfig,
        vocab=59,
        hidden=64,
        intermediate=128,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(10000.0),
        tie_word_embeddings=True,
    )
    return Fixture(
        name,
        f"Llama whose linear layers are of 4 bits, {what}: GQA 4/2, tied, the rest bf16",
        config,
        LlamaForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
        quantization=quantization,
        left_out=left_out,
        seed_place=seed_place,
    )


def int4_gptq_tiny():
    what = "symmetric, f16 scales for 32 inputs, as GPTQ stores them (version 1)"
    return int4_llama("int4-gptq-tiny", "gptq", what, 40)


def int4_awq_tiny():
    what = "with zero points, f16 scales for 32 inputs, as AWQ stores them (gemm)"
    return int4_llama("int4-awq-tiny", "awq", what, 41)


def int4_compressed_tiny():
    what = "with zero points, bf16 scales for 64 inputs, as compressed-tensors stores them"
    return int4_llama("int4-compressed-tiny", "pack-quantized", what, 42)


def int4_ignore_tiny():
    what = (
        "with zero points, bf16 scales for 64 inputs, as compressed-tensors stores them, but for "
        "the attention of the second layer, which is bf16"
    )
    left_out = (r"re:.*layers\.1\.self_attn\..*",)
    return int4_llama("int4-ignore-tiny", "pack-quantized", what, 66, left_out)


def quantised_experts(name, quantization, what, seed_place):
    config = config_of(
        Qwen3MoeConfig,
        vocab=59,
        hidden=64,
        intermediate=64,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-6,
        rope_parameters=plain_rope(1000000.0),
        attention_bias=False,
        use_sliding_window=False,
        sliding_window=None,
        moe_intermediate_size=32,
        num_experts=6,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        tie_word_embeddings=False,
    )
    return Fixture(
        name,
        f"Qwen3-MoE whose experts and linear layers are {what}: 6 experts, 2 for each token, "
        "GQA 4/2, untied, routers and the rest bf16",
        config,
        Qwen3MoeForCausalLM,
        torch.bfloat16,
        transformers4_dialect=True,
        quantization=quantization,
        seed_place=seed_place,
    )


def qwen3moe_fp8_tiny():
    what = "E4M3, one scale for each 128 x 128 block, of which each matrix has one"
    return quantised_experts("qwen3moe-fp8-tiny", "block", what, 43)


def qwen3moe_int4_tiny():
    what = "of 4 bits, symmetric, f16 scales for 32 inputs, as GPTQ stores them (version 1)"
    return quantised_experts("qwen3moe-int4-tiny", "gptq", what, 44)


def gpt_oss_tiny():
    config = config_of(
        GptOssConfig,
        vocab=57,
        hidden=64,
        intermediate=32,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 150000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "beta_fast": 4.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
        sliding_window=19,
        num_local_experts=6,
        num_experts_per_tok=2,
        tie_word_embeddings=False,
        pad_token_id=0,
    )
    what = (
        "gpt-oss: 6 experts with biases, in MXFP4, 2 for each token, a sink for every head, a "
        "first layer that slides by 19 tokens and a second that does not, yarn without rounded "
        f"bounds: GQA 4/2, head_dim 16, untied, the rest bf16, {TRANSFORMERS5}"
    )
    return Fixture(
        "gpt-oss-tiny",
        what,
        config,
        GptOssForCausalLM,
        torch.bfloat16,
        quantization="mxfp4",
        seed_place=45,
    )


def hybrid(name, what, seed_place, **fields):
    config = config_of(
        GraniteMoeHybridConfig,
        vocab=65,
        hidden=48,
        heads=(4, 2),
        rms_norm_eps=1e-5,
        embedding_multiplier=2.5,
        attention_multiplier=0.4,
        residual_multiplier=0.6,
        logits_scaling=1.75,
        shared_intermediate_size=40,
        layer_types=["mamba", "attention"],
        mamba_n_heads=6,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_expand=2,
        mamba_chunk_size=16,
        **fields,
    )
    return Fixture(
        name,
        f"Granite 4.0-H: a first layer of Mamba-2, a second with attention, {what}, all four "
        f"multipliers off their neutral values: GQA 4/2, head_dim 12, {TRANSFORMERS5}",
        config,
        GraniteMoeHybridForCausalLM,
        torch.bfloat16,
        seed_place=seed_place,
    )


def granite_hybrid_tiny():
    what = "two groups of B and C, no rope, an MLP alone, tied, bf16 checkpoint"
    return hybrid(
        "granite-hybrid-tiny",
        what,
        46,
        intermediate=40,
        num_local_experts=0,
        mamba_n_groups=2,
        tie_word_embeddings=True,
    )


def granite_hybrid_moe_tiny():
    what = "rope, 6 experts, 2 for each token, beside an MLP, untied, bf16 checkpoint"
    return hybrid(
        "granite-hybrid-moe-tiny",
        what,
        47,
        intermediate=16,
        num_local_experts=6,
        num_experts_per_tok=2,
        position_embedding_type="rope",
        rope_parameters=plain_rope(10000.0),
        tie_word_embeddings=False,
    )


def bamba_tiny():
    config = config_of(
        BambaConfig,
        vocab=65,
        hidden=48,
        intermediate=40,
        heads=(4, 2),
        rms_norm_eps=1e-5,
        attn_layer_indices=[1],
        mamba_n_heads=6,
        mamba_d_head=16,
        mamba_d_state=16,
        mamba_expand=2,
        mamba_chunk_size=16,
        tie_word_embeddings=False,
    )
    return Fixture(
        "bamba-tiny",
        "Bamba: a first layer of Mamba-2, a second with attention that turns half of each head: "
        f"GQA 4/2, head_dim 12, untied, bf16 checkpoint, {TRANSFORMERS5}",
        config,
        BambaForCausalLM,
        torch.bfloat16,
        seed_place=48,
    )


def vision_fields():
    """Of a vision part with one layer, whose images have 2 x 2 patches."""
    return {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
    }


def gemma3_vision_tiny():
    text = config_of(
        Gemma3TextConfig,
        vocab=71,
        hidden=36,
        intermediate=40,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-6,
        rope_parameters={
            "sliding_attention": plain_rope(10000.0),
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        },
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=12,
        sliding_window=19,
        tie_word_embeddings=True,
    )
    config = Gemma3Config(
        text_config=text,
        vision_config=SiglipVisionConfig(vision_use_head=False, **vision_fields()),
        mm_tokens_per_image=4,
        boi_token_index=68,
        eoi_token_index=69,
        image_token_index=70,
        tie_word_embeddings=True,
    )
    what = (
        "Gemma 3 with a vision part, given text alone: the text part's fields in text_config, its "
        "tensors named as published (language_model.model.*): GQA 4/2, window of 19 tokens in the "
        f"first layer, tied, bf16 checkpoint, {TRANSFORMERS4}"
    )
    return Fixture(
        "gemma3-vision-tiny",
        what,
        config,
        Gemma3ForConditionalGeneration,
        torch.bfloat16,
        transformers4_dialect=True,
        transformers4_fields={"sliding_window_pattern": 2},
        seed_place=62,
        tensor_names=fixture_vision.PUBLISHED,
    )


def mistral3_vision_tiny():
    text = config_of(
        MistralConfig,
        vocab=61,
        hidden=32,
        intermediate=40,
        heads=(4, 2),
        head_dim=16,
        rms_norm_eps=1e-5,
        rope_parameters=plain_rope(1000000.0),
        sliding_window=None,
        tie_word_embeddings=False,
    )
    config = Mistral3Config(
        text_config=text,
        vision_config=PixtralVisionConfig(hidden_act="gelu", **vision_fields()),
        image_token_index=10,
        projector_hidden_act="gelu",
        vision_feature_layer=-1,
        multimodal_projector_bias=False,
        spatial_merge_size=2,
        tie_word_embeddings=False,
    )
    what = (
        "Mistral 3 with a vision part, given text alone: the text part's fields in text_config, "
        "its tensors named as the modules of transformers 5 (model.language_model.*): GQA 4/2, no "
        f"window, untied, bf16 checkpoint, {TRANSFORMERS5}"
    )
    return Fixture(
        "mistral3-vision-tiny",
        what,
        config,
        Mistral3ForConditionalGeneration,
        torch.bfloat16,
        seed_place=63,
        tensor_names=fixture_vision.MODULES,
    )


# In the order of their seeds: a new one goes to the end.
FIXTURES = [
    llama_tiny,
    llama3_rope_bias_tiny,
    granite_tiny,
    mistral_tiny,
    qwen2_tiny,
    qwen3_tiny,
    linear_rope_tiny,
    yarn_rope_tiny,
    ministral_tiny,
    gemma2_tiny,
    gemma3_tiny,
    phi3_tiny,
    olmo2_tiny,
    fp8_tensor_tiny,
    fp8_channel_tiny,
    fp8_block_tiny,
    mixtral_tiny,
    qwen3moe_tiny,
    granitemoe_tiny,
    int4_gptq_tiny,
    int4_awq_tiny,
    int4_compressed_tiny,
    qwen3moe_fp8_tiny,
    qwen3moe_int4_tiny,
    gpt_oss_tiny,
    granite_hybrid_tiny,
    granite_hybrid_moe_tiny,
    bamba_tiny,
    fp8_rounded_tiny,
    phi3_longrope_tiny,
    phi4_mini_tiny,
    gemma3_vision_tiny,
    mistral3_vision_tiny,
    fp8_modelopt_tiny,
    fp8_fbgemm_tiny,
    int4_ignore_tiny,
]
