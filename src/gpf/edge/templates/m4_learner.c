/* Learns from transitions on the emulated board: prints what each epoch brought, checksums, and instructions. */
#include "gpf_learner.h"
#include "m4_board.h"

#include <stdio.h>

$arrays

static gpf_learner learner;

int main(void)
{
    const uint64_t words[4] = {1u, 2u, 3u, 4u};
    uint32_t ticks = 0u;
    start_clock();
    gpf_learner_begin(&learner, words);
    for (int n = 0; n < $count; ++n) {
        const uint32_t before = SYSTICK_VALUE;
        gpf_update(&learner, inputs[n], actions[n], rewards[n], ends[n] ? 0 : inputs[n + 1]);
        ticks += (before - SYSTICK_VALUE) & LONGEST;
        if (n % $epoch == $epoch - 1) {
            const int happened = gpf_end_epoch(&learner, metrics[n / $epoch]);
            uint32_t crc = gpf_crc32(0u, learner.values, sizeof learner.values);
            crc = gpf_crc32(crc, learner.first, sizeof learner.first);
            crc = gpf_crc32(crc, learner.second, sizeof learner.second);
            crc = gpf_crc32(crc, learner.belief, sizeof learner.belief);
            printf("epoch %d %lu %lu\n", happened, (unsigned long)crc, (unsigned long)ticks);
            ticks = 0u;
        }
    }
    printf("RAM %lu\n", (unsigned long)gpf_learner_ram());
    return 0;
}
