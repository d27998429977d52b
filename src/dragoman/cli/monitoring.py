"""`dragoman monitoring`: alert rules and dashboards for the metrics of `dragoman exporter`, as files."""

from __future__ import annotations

import argparse

from dragoman.errors import Invalid

EXAMPLES = """\
examples:
  dragoman monitoring rules > dragoman.rules.yaml          for rule_files: of prometheus.yml
  dragoman monitoring prometheusrule | kubectl apply -f -  for the Prometheus operator
  dragoman monitoring dashboard fleet > fleet.json         for Grafana
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What to print."""
    parser.epilog = EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    forms = parser.add_subparsers(dest="form", required=True, metavar="WHAT", parser_class=type(parser))
    for name, summary in (
        ("rules", "print a rule file of Prometheus"),
        ("prometheusrule", "print a PrometheusRule of the Prometheus operator"),
    ):
        one = forms.add_parser(name, help=summary)
        one.add_argument(
            "--runbooks", default="docs/runbooks", metavar="URL", help="where runbooks are; default: docs/runbooks"
        )
        if name == "rules":
            one.add_argument(
                "--speed",
                type=float,
                default=1.0,
                metavar="N",
                help="divide all durations by N, for a cluster whose clock is N times as fast",
            )
            one.add_argument("--interval", default="", metavar="TIME", help="evaluation interval of all groups")
        else:
            one.add_argument("-n", "--namespace", default="monitoring", metavar="NS")
    board = forms.add_parser("dashboard", help="print a Grafana dashboard as JSON")
    board.add_argument("name", nargs="?", metavar="NAME", help="which one; default: list them")


def run(args: argparse.Namespace) -> int:
    """Print."""
    from dragoman.cli import output
    from dragoman.ops import rules

    if args.form == "dashboard":
        return _dashboard(args.name)
    if args.form == "rules":
        if not 0.001 <= args.speed <= 10_000:
            raise Invalid("--speed", f"must be from 0.001 to 10000, got {args.speed:g}")
        body = rules.rule_file(runbooks=args.runbooks, speed=args.speed, interval=args.interval)
    else:
        body = rules.prometheus_rule(runbooks=args.runbooks, namespace=args.namespace)
    output.write(yaml_text(body).rstrip())
    return 0


def _dashboard(name: str | None) -> int:
    from dragoman.cli import output
    from dragoman.ops.dashboards import DASHBOARDS, NAMES, dashboard

    if name is None:
        output.write(output.rows(["NAME", "TITLE"], [[board.name, board.title] for board in DASHBOARDS]))
        return 0
    if name not in NAMES:
        raise Invalid("monitoring dashboard", f"there is no {name!r}, only {', '.join(NAMES)}")
    output.write_json(dashboard(name))
    return 0


def yaml_text(body: object) -> str:
    """YAML with keys in their order."""
    import yaml

    return str(yaml.safe_dump(body, sort_keys=False, width=110, allow_unicode=True))
