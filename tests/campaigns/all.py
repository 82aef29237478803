"""Every campaign, by name."""

from tests.campaigns import (
    again,
    api_calls,
    arrays,
    command_lines,
    disks,
    forged_results,
    kills,
    links,
    names,
    processes,
    recorded_steps,
    run_folders,
    threads,
)

CAMPAIGNS = {
    module.CAMPAIGN.name: module.CAMPAIGN
    for module in (
        kills,
        again,
        processes,
        disks,
        run_folders,
        forged_results,
        links,
        names,
        arrays,
        command_lines,
        api_calls,
        recorded_steps,
        threads,
    )
}
