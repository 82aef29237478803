"""Every campaign, by name."""

from tests.campaigns import api_calls, arrays, command_lines, disks, kills, names, run_folders

CAMPAIGNS = {
    module.CAMPAIGN.name: module.CAMPAIGN
    for module in (kills, disks, run_folders, names, arrays, command_lines, api_calls)
}
