# SPDX-License-Identifier: Apache-2.0
"""Each fault alone, and all of them mixed: the rows stay equal and nothing is left behind."""

from __future__ import annotations

import nemesis
import pytest
from arena import Arena
from checker import belongings, check_end
from nemesis import torment

# How often each strikes alone.
ALONE = {
    nemesis.kill_daemon: 20,
    nemesis.kill_trainer: 20,
    nemesis.stop_daemon: 5,
    nemesis.stop_trainer: 5,
    nemesis.drain: 3,
    nemesis.cut_connections: 10,
    nemesis.many_sessions: 1,
    nemesis.malformed_datagrams: 3,
    nemesis.malformed_rpcs: 3,
    nemesis.half_open_metrics: 1,
}
# What a sanitizer would see of the others, it sees in the mixed run.
WITH_SANITIZER = (nemesis.malformed_datagrams, nemesis.malformed_rpcs)
# All but the long ones, of which there are shorter forms.
MIXED = [nemesis.some_sessions, *(fault for fault in ALONE if fault not in
                                  (nemesis.many_sessions, nemesis.half_open_metrics))]


@pytest.mark.parametrize("fault", [
    pytest.param(fault, id=fault.__name__,
                 marks=[] if fault in WITH_SANITIZER else [pytest.mark.release_only])
    for fault in ALONE])
def test_a_fault_alone(fault, chaos_photos, undisturbed, dice, tmp_path):
    proxied = 2 if fault is nemesis.cut_connections else 0
    with Arena(chaos_photos, tmp_path, proxied=proxied) as arena:
        before = belongings(arena.daemon)
        arena.start_trainers()
        torment(arena, [fault] * ALONE[fault], dice)
        check_end(arena, undisturbed, before)


def test_all_faults_mixed(chaos_photos, undisturbed, dice, tmp_path):
    with Arena(chaos_photos, tmp_path, world_size=4, proxied=2) as arena:
        before = belongings(arena.daemon)
        arena.start_trainers()
        faults = MIXED * 2
        dice.shuffle(faults)
        torment(arena, faults, dice)
        check_end(arena, undisturbed, before)
