"""vLLM engines and learner ranks as Ray actors. Nothing outside this folder imports `ray` or `vllm`."""
