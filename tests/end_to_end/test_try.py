import time
from pathlib import Path
import pytest
from prorl.launch import start_run
from prorl.recipe import load_recipe
from prorl.watch.console import Console
@pytest.mark.parametrize("arch",["llama","qwen3","gpt_neox"])
def test_x(arch, write_recipe, tmp_path):
    t=time.time()
    s=start_run(load_recipe(str(write_recipe(tmp_path, arch))), tmp_path/"run", Console())
    print(s, time.time()-t)
    import os
    os.system(f"find {tmp_path} | sort; cat {tmp_path}/run/journal.jsonl; head -c 600 {tmp_path}/run/samples/*1.jsonl")
