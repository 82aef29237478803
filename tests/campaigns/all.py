"""Every campaign, by name."""

from tests.campaigns import api_calls, arrays, command_lines, disks, kills, processes, run_folders

CAMPAIGNS = {
    module.CAMPAIGN.name: module.CAMPAIGN
    for module in (kills, processes, disks, run_folders, arrays, command_lines, api_calls)
}
