"""Tests of metrics, alert rules, dashboards and drills."""
