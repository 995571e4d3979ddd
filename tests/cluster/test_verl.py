"""`verl_score` in the real verl: its loader of reward functions and its reward managers, on a CPU."""

from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from prorl.learn.base_model import train_tokenizer

pytestmark = pytest.mark.cluster
RESPONSES = {r"so \boxed{2/4}": 1.0, r"so \boxed{3}": 0.0, "I do not know": 0.0}
WIDTH = 16  # of a prompt and of a response


@pytest.fixture
def batch() -> tuple[Any, Any]:
    """A tokenizer, and verl's batch of a prompt and each response."""
    from verl import DataProto

    tokenizer = train_tokenizer(RESPONSES, vocab_size=300)
    prompt = torch.full((len(RESPONSES), WIDTH), 5)
    told = [tokenizer.encode(text, add_special_tokens=False) for text in RESPONSES]
    width = max(map(len, told))
    ids = torch.tensor([tokens + [0] * (width - len(tokens)) for tokens in told])
    mask = torch.tensor([[1] * WIDTH + [1] * len(tokens) + [0] * (width - len(tokens)) for tokens in told])
    count = len(RESPONSES)
    data = DataProto.from_dict(
        tensors={"prompts": prompt, "responses": ids, "attention_mask": mask},
        non_tensors={
            "data_source": ["mine"] * count,
            "reward_model": [{"ground_truth": r"\frac{1}{2}"}] * count,
            "extra_info": [{"index": index} for index in range(count)],
        },
    )
    return tokenizer, data


def config(**changes: Any) -> Any:
    function = {"path": "pkg://prorl.envs.adapters", "name": "verl_score"} | changes
    manager = {"source": "register", "name": "naive"}
    return OmegaConf.create({"reward": {"custom_reward_function": function, "reward_manager": manager}})


def test_verl_s_reward_loop_grades_by_our_verifiers(batch):
    from verl.trainer.ppo.reward import load_reward_manager

    tokenizer, data = batch
    manager = load_reward_manager(config(), tokenizer)

    async def grade() -> list[dict[str, Any]]:
        return [await manager.run_single(data[index : index + 1]) for index in range(len(data))]

    found = manager.loop.run_until_complete(grade())
    assert [one["reward_score"] for one in found] == list(RESPONSES.values())
    assert [one["reward_extra_info"]["answered"] for one in found] == [1.0, 1.0, 0.0]
    assert all(one["reward_extra_info"]["judged"] == 1.0 for one in found)


def test_verl_s_older_reward_manager_does_too(batch):
    from verl.trainer.ppo.reward import get_custom_reward_fn
    from verl.workers.reward_manager.naive import NaiveRewardManager

    tokenizer, data = batch
    score = get_custom_reward_fn(config(reward_kwargs={"kind": "math"}))
    rewards = NaiveRewardManager(tokenizer, num_examine=0, compute_score=score)(data)
    assert rewards.sum(1).tolist() == list(RESPONSES.values())
