"""Models whose memory is worked out by hand."""

from prorl.cluster.capacity import Size

QWEN_1_5B = Size(
    parameters=1.54e9,
    hidden_size=1536,
    intermediate_size=8960,
    layers=28,
    heads=12,
    kv_heads=2,
    head_width=128,
    context=131_072,
)
QWEN_32B = Size(
    parameters=32.8e9,
    hidden_size=5120,
    intermediate_size=27_648,
    layers=64,
    heads=40,
    kv_heads=8,
    head_width=128,
    context=40_960,
)
LLAMA_8B = Size(
    parameters=8.03e9,
    hidden_size=4096,
    intermediate_size=14_336,
    layers=32,
    heads=32,
    kv_heads=8,
    head_width=128,
    context=131_072,
)
