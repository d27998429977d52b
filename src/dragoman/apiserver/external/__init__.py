"""Admission that users bring: webhooks, and policies stored as objects. Joined in `chain`, behind the plugins."""
