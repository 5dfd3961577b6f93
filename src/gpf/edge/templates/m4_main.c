/* Replays observations on the emulated board: prints the actions, and the instructions that they took. */
#include "gpf_policy.h"
#include "m4_board.h"

#include <stdio.h>

$sensors

static int8_t chosen[$count];

int main(void)
{
    static gpf_state state;
    uint32_t before, after;
    printf("self-test %d\n", gpf_self_test());
    start_clock();
    gpf_reset(&state);
    before = SYSTICK_VALUE;
    for (int n = 0; n < $count; ++n) {
        chosen[n] = (int8_t)gpf_greedy(&state, sensors[n]);
    }
    after = SYSTICK_VALUE;
    printf("ticks %lu\nactions", (unsigned long)((before - after) & LONGEST));
    for (int n = 0; n < $count; ++n) {
        printf(" %d", chosen[n]);
    }
    printf("\n");
    return 0;
}
