"""What a prolonged run needs to decide, as pure functions of plain data: plan, state, events, decisions."""
