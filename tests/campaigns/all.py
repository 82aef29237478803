"""Every campaign, by name."""

from tests.campaigns import again, api_calls, arrays, command_lines, disks, kills, names, run_folders

CAMPAIGNS = {
    module.CAMPAIGN.name: module.CAMPAIGN
    for module in (kills, again, disks, run_folders, names, arrays, command_lines, api_calls)
}
