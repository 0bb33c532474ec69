"""Every exception that kbqa raises, as one tree.

    KbqaError
    ├── ConfigurationError          a setting, flag or recipe is wrong
    │   ├── RecipeError
    │   └── PortInUseError
    ├── DatasetError                questions cannot be read
    ├── GraphError
    │   ├── GraphNotFoundError
    │   ├── GraphChangeError        a batch of changes has a line that cannot be read
    │   │   └── ChangeTooLargeError
    │   ├── ChangeConflictError     a graph does not take changes, or not these
    │   ├── GraphLoadError          a file's line cannot be read
    │   ├── GraphUnavailableError   kg_server or its back end does not answer
    │   │   └── EncoderUnavailableError
    │   └── QueryError
    │       ├── QuerySyntaxError
    │       ├── QueryRefusedError   updates, SERVICE, LOAD: never executed
    │       ├── AmbiguousNameError  a local name of several relations
    │       ├── QueryTimeoutError
    │       ├── QueryMemoryError    stopped at the memory that a query may use
    │       ├── QueryOverloadError  too many others wait; never executed
    │       └── QueryLostError      its process was killed from outside
    ├── LogicalFormError            an S-expression, action or compilation is wrong
    ├── PolicyError
    │   ├── NoPolicyError           nothing promoted, or nothing published yet
    │   │   └── PolicyChangingError a version takes over in a moment
    │   ├── BaseNotFoundError       a pretrained model is not on this machine
    │   ├── PolicyIntegrityError    files of a version or a base are not what was published
    │   ├── PolicyMismatchError     an engine and a version's trainer compute different values
    │   ├── PolicyRefusedError      the endpoint of a policy refuses requests
    │   └── PolicyUnavailableError  the engine does not answer
    │       └── PolicyStoreUnavailableError
    ├── ChatError                   a chat endpoint
    │   ├── ChatRefusedError        it refuses requests, or is not a chat endpoint
    │   └── ChatUnavailableError    no reply after all attempts
    ├── ConversationError           a follow-up question that cannot be completed
    ├── JudgeUnavailableError       no verdict on an answer
    ├── FeedbackFullError           the file of users' feedback has its maximum size
    ├── CorrectionsError            corrections cannot be taught, or the record of what was taught is damaged
    ├── MessageError                a queue message that does not fit its schema
    ├── CheckpointError
    ├── QueueUnavailableError       the broker does not answer
    └── RunError                    a training run cannot start, stop or be found
        ├── RunNotFoundError
        ├── RunConflictError        a request conflicts with the state of a run
        └── LeaseLostError          another trainer has taken over the home

Inside an episode a failure is a value (`kbqa.trajectory.Status`) instead of an
exception, because the reward must see it. Messages are shown to the user
unchanged, so they say what to do next.
"""

from __future__ import annotations

from pathlib import Path


class KbqaError(Exception):
    """Root of the tree. Its text is meant for the user."""


class ConfigurationError(KbqaError):
    """A setting, flag or configuration file is wrong."""


class RecipeError(ConfigurationError):
    """A recipe has an unknown key or an impossible value."""


class RecipeRefusedError(RecipeError):
    """A recipe from a request names something that the service's operator has not allowed."""

    def __init__(self, key: str, kind: str, value: str) -> None:
        self.key, self.kind = key, kind
        setting = {"URL": "URLS", "environment variable": "VARIABLES", "path": "DIRECTORIES"}[kind]
        super().__init__(
            f'{key}: recipes from requests may not name the {kind} "{value}": the operator of the trainer '
            f"allows it with KBQA_TRAINER_RECIPE_{setting}"
        )


class PlanError(ConfigurationError):
    """It cannot be told what a recipe needs of a machine."""


class MachineTooSmallError(ConfigurationError):
    """A recipe needs more memory than the machine has; says what would fit."""


class PortInUseError(ConfigurationError):
    """Another process listens on the port that a service was given."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        super().__init__(
            f"port {port} on {host} is in use: stop the process that holds it, or choose another with --port"
        )


class DatasetError(KbqaError):
    """A data set is missing or malformed."""


class GraphError(KbqaError):
    """Root of everything that concerns a knowledge graph."""


class GraphNotFoundError(GraphError):
    """No graph of that name is loaded."""

    def __init__(self, name: str, known: list[str] | None = None) -> None:
        self.name = name
        have = f"loaded graphs: {', '.join(sorted(known))}" if known else "no graph is loaded yet"
        super().__init__(f'no graph named "{name}" ({have}); load one with: kbqa kg load NAME FILE')


class GraphChangeError(GraphError):
    """Changes of a graph cannot be read; names the line, and the reason."""


class ChangeTooLargeError(GraphChangeError):
    """A batch has more changes than a service accepts at once."""


class ChangeConflictError(GraphError):
    """A graph is of a kind that takes no changes, or the key of a batch was used for another one."""


class GraphLoadError(GraphError):
    """A graph file cannot be read; names the file, the line (from 1) and the reason."""

    def __init__(self, path: Path | str, reason: str, line: int | None = None) -> None:
        self.path, self.line, self.reason = Path(path), line, reason
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {reason}")


class GraphWriteError(GraphError):
    """A graph cannot be written to disk."""


class GraphUnavailableError(GraphError):
    """kg_server, or the store behind it, cannot be reached."""


class EncoderUnavailableError(GraphUnavailableError):
    """The embedding server cannot be reached, or returns an invalid response."""


class QueryError(GraphError):
    """A SPARQL query was not executed to its end."""


class QuerySyntaxError(QueryError):
    """The query does not parse."""


class QueryRefusedError(QueryError):
    """The query asks for something that is never executed: an update, SERVICE, LOAD, FROM."""


class AmbiguousNameError(QueryError):
    """A short form of a name stands for several relations; the message names them."""


class QueryTimeoutError(QueryError):
    """The query was killed at its deadline."""


class QueryMemoryError(QueryError):
    """The query needed more memory, or more stack, than a query may use."""


class QueryOverloadError(QueryError):
    """The query was not executed because too many queries are running or waiting. Retrying may help."""

    def __init__(self, reason: str, retry_after_s: float = 1.0) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(reason)


class QueryLostError(QueryError):
    """The process that executed the query was killed from outside; the query may be sent again."""


class LogicalFormError(KbqaError):
    """A logical form cannot be read, built or compiled; `position` counts characters from 1."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        self.reason, self.position = reason, position
        super().__init__(reason if position is None else f"at character {position}: {reason}")


class PolicyError(KbqaError):
    """Root of everything that concerns a policy."""


class NoPolicyError(PolicyError):
    """There is no policy version to load."""


class PolicyChangingError(NoPolicyError):
    """The engine can hold one version only, and another one is taking over; ask again in a moment."""


class BaseNotFoundError(PolicyError):
    """A pretrained model from which policies start is not on this machine, or is incomplete."""


class PolicyIntegrityError(PolicyError):
    """Files of a policy version, or of a base, are missing or do not match their checksums."""


class PolicyMismatchError(PolicyError):
    """An engine holds a version, but its log-probabilities differ from those of the version's trainer."""


class PolicyRefusedError(PolicyError):
    """The endpoint of a policy refuses requests: key, model or parameters are wrong."""


class PolicyUnavailableError(PolicyError):
    """The engine that holds the policy does not answer."""


class ChatError(KbqaError):
    """Root of everything that concerns a chat endpoint."""


class ChatRefusedError(ChatError):
    """The endpoint refuses a request (key, model, parameters), or does not answer with a chat completion."""


class ChatUnavailableError(ChatError):
    """The endpoint gave no reply in any of several attempts."""


class PolicyStoreUnavailableError(PolicyUnavailableError):
    """The place where policy versions are kept does not answer."""


class ConversationError(KbqaError):
    """A follow-up question refers to something that its conversation has not mentioned."""

    def __init__(self, words: str) -> None:
        super().__init__(
            f'the question refers to something that was not mentioned ("{words[:100]}"): '
            "ask it with the name of what is meant"
        )


class JudgeUnavailableError(KbqaError):
    """A judge gave no verdict; the answer is neither right nor wrong."""


class FeedbackFullError(KbqaError):
    """The file of users' feedback has reached its maximum size."""

    def __init__(self) -> None:
        super().__init__(
            "no room for more feedback: the operator of this gateway must export it (kbqa feedback export) "
            "and move the file away, or raise KBQA_GATEWAY_FEEDBACK_MB"
        )


class CorrectionsError(KbqaError):
    """Corrections by users cannot be taught or taken back, or the record of what was taught is damaged."""


class MessageError(KbqaError):
    """A message between services does not fit its schema."""


class CheckpointError(KbqaError):
    """A checkpoint is missing, incomplete or belongs to another run."""


class QueueUnavailableError(KbqaError):
    """The message broker cannot be reached."""


class RunError(KbqaError):
    """A training run cannot be started, stopped, found or continued."""


class RunNotFoundError(RunError):
    """There is no run with that id."""


class RunConflictError(RunError):
    """A request for a run conflicts with its state, or with that of another run."""


class LeaseLostError(RunError):
    """Another trainer has taken over the home; this process must not write to its runs any more."""
