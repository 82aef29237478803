"""Every campaign, by name."""

from tests.campaigns import api_calls, arrays, command_lines, disks, forged_results, kills, links, processes, run_folders

CAMPAIGNS = {module.CAMPAIGN.name: module.CAMPAIGN for module in (kills, processes, disks, run_folders, forged_results, links, arrays, command_lines, api_calls)}
