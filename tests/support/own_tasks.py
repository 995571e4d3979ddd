"""Files as users write them."""

REVERSE_WORDS = """\
from prorl.envs import ProceduralTask, draft

WORDS = "apple bell cloud door earth fig grass hill ink jar kite lamp moon nest oak pond".split()


class ReverseWords(ProceduralTask):
    domain = "logic"
    levels = (3, 4, 5)

    def generate(self, rng, level):
        words = rng.sample(WORDS, level)
        right = " ".join(reversed(words))
        return draft(f"Write these words in reverse order: {' '.join(words)}", right, steps="", answer=right)

    def score(self, payload, answer):
        return float(answer.split() == payload.split())
"""

LENGTH_REWARD = '''\
def score(response, row, gold):
    """The share of the words asked for that the response says."""
    return sum(word in response for word in gold.split()) / len(gold.split())
'''

ADDING = """\
import os
import verifiers.v1 as vf
from prorl.envs.extract import extract_answer
__all__ = ["AddingTaskset"]

class Data(vf.TaskData):
    answer: int

class Adding(vf.Task[Data]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        if trace.last_reply == "raise":
            raise KeyError("no")
        return float(extract_answer(trace.last_reply) == str(self.data.answer))

    @vf.reward(weight=0.5)
    async def brief(self, task, trace) -> float:
        assert trace.num_turns == 1 and task.answer == self.data.answer
        return {"more": 9.0, "less": -9.0}.get(trace.last_reply, len(trace.last_reply) < 30)

class AddingTaskset(vf.Taskset[Adding, vf.TasksetConfig]):
    def load(self):
        shots = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "<answer>2</answer>"}]
        shift = int(os.environ.get("SHIFT", 0))
        for n in range(200):
            prompt = [*shots, {"role": "user", "content": f"{n}+3?"}] if n % 2 else f"{n}+3?"
            yield Adding(Data(prompt=prompt, system_prompt="Add.", answer=n + 3 + shift), self.config.task)
"""
