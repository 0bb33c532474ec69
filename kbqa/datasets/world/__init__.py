"""Generated worlds: graphs, and questions about them, of any size and repeatable by seed.

The small world has paths alone (`small`); another asks for every operation (`everything`), a third
about dates (`temporal`).
"""

from kbqa.datasets.world.everything import generate_world_all
from kbqa.datasets.world.sets import GENERATED
from kbqa.datasets.world.small import World, generate_questions, generate_world

__all__ = ["GENERATED", "World", "generate_questions", "generate_world", "generate_world_all"]
