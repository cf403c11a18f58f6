"""Keeps what was read of a call's messages, for the program's next call."""

from __future__ import annotations

from dataclasses import dataclass

from weft_gateway.calls.call import Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.calls.placement import PromptCounter
from weft_gateway.engine import media
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.policies.tags_sections import is_otherwise
from weft_gateway.programs.transcripts import Transcripts
from weft_gateway.transcripts.reading import marks_of


@dataclass(slots=True, eq=False)
class TranscriptObserver(CallObserver):
    """Keeps transcripts of calls that were sent to an engine."""

    transcripts: Transcripts
    counter: PromptCounter

    def observes(self, endpoint: Endpoint) -> bool:
        """Observe calls with messages."""
        return endpoint.is_text

    def ended(self, call: Call) -> None:
        """Keep the messages of a long body."""
        reading = call.reading
        if reading is None or not call.replica or is_otherwise(call.body):
            return
        if media.may_name(reading.fresh) and media.own_names(call.body, "") is not call.body:
            # These names are replaced in each call.
            return
        counted = self.counter.count(call)
        reading = call.reading
        assert reading is not None
        begun, counts = (counted.begun, 0.0), dict[int, tuple[int, float, int]]()
        for section, end, chain in zip(call.sections, counted.ends, counted.chains, strict=True):
            if section.message < reading.first:
                begun = chain, end
            else:
                tag = max(int(section.tag), counts.get(section.message, (0, 0.0, 0))[2])
                counts[section.message] = chain, end, tag
        marks = marks_of(call.body, reading.known)
        messages = call.body[reading.name]
        transcript = reading.transcript(call.key, messages, begun, counts, marks)
        if transcript is not None:
            self.transcripts.keep(reading, transcript)
