"""Who is asking, and may they? Authentication, authorization and what guards the rules of authorization themselves."""
