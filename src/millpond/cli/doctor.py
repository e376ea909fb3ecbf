"""`millpond doctor`: checks for common problems before they cause a failure, and says what to do about them.

The checks are in `checks.py` (this machine and its settings), `security_checks.py` (certificates, files with secrets,
weak settings) and `ports.py` (what listens on each port). They change nothing, apart from a small file in the data
directory that is removed again.
"""

from dataclasses import asdict
from pathlib import Path

import click

from millpond.cli import checks, ports, security_checks
from millpond.cli.checks import CheckResult
from millpond.cli.connection import ClientOptions, client_options
from millpond.cli.main import EXIT_FAILED
from millpond.cli.options import json_option, load_settings, security_options, settings_options
from millpond.cli.output import count_text, print_json, print_table
from millpond.model.errors import MillpondError
from millpond.settings import Settings


@click.command(
    epilog="\b\nExamples:\n  millpond doctor\n  millpond doctor --data-dir /var/lib/millpond --set storage=s3://bucket/x\n"
    "\n\b\nExit code 1 if there is a problem; warnings do not count."
)
@settings_options
@security_options
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    data_dir: Path | None,
    config: Path | None,
    assignments: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check for common problems with these settings, and suggest remedies."""
    findings = checks.of_machine()
    try:
        settings = load_settings(data_dir, config, assignments)
    except MillpondError as error:
        findings.append(CheckResult("settings", "problem", str(error), "`millpond settings` shows them all"))
    else:
        findings += _of(settings, config, client_options(is_own_address=True))
    problems = sum(each.status == "problem" for each in findings)
    if as_json:
        print_json({"problems": problems, "findings": [asdict(each) for each in findings]})
    else:
        _print(findings, problems)
    if problems:
        context.exit(EXIT_FAILED)


def _of(settings: Settings, config: Path | None, options: ClientOptions) -> list[CheckResult]:
    return [
        CheckResult("settings", "ok", "they can be read"),
        *checks.of_limits(settings.connections_max),
        *(checks.of_data_dir(settings.data_dir) if settings.uses_data_dir() else []),
        *checks.of_storage_and_catalog(settings),
        *security_checks.of_security(settings, config),
        *ports.check_interface_ports(settings, options),
    ]


def _print(findings: list[CheckResult], problems: int) -> None:
    print_table(("CHECK", "STATUS", "FOUND"), [(each.check, each.status, each.found) for each in findings])
    advised = [each for each in findings if each.advice]
    if advised:
        click.echo("\nWhat to do")
        for each in advised:
            click.echo(f"  {each.check}: {each.advice}")
    warnings = sum(each.status == "warning" for each in findings)
    click.echo(f"\n{count_text(problems, 'problem')}, {count_text(warnings, 'warning')}")
