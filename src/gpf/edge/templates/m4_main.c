/* Replays observations on the emulated board: reads them from a file of the host, writes the actions to another, and
   prints the instructions that they took. */
#include "gpf_policy.h"
#include "m4_board.h"

#include <stdio.h>

#define ROWS 512

typedef struct {
    float begins; /* 1 where an episode begins */
    float sensors[GPF_SENSORS];
} row;

static row rows[ROWS];
static int8_t chosen[ROWS];

int main(void)
{
    static gpf_state state;
    unsigned long long ticks = 0u;
    size_t count;
    FILE *in = fopen("$sensors", "rb"), *out = fopen("$actions", "wb");
    if (!in || !out) {
        return 1;
    }
    printf("self-test %d\n", gpf_self_test());
    start_clock();
    gpf_reset(&state);
    while ((count = fread(rows, sizeof rows[0], ROWS, in)) > 0u) {
        const uint32_t before = SYSTICK_VALUE;
        for (size_t n = 0; n < count; ++n) {
            if (rows[n].begins > 0.0f) {
                gpf_reset(&state);
            }
            chosen[n] = (int8_t)gpf_greedy(&state, rows[n].sensors);
        }
        ticks += (before - SYSTICK_VALUE) & LONGEST;
        (void)fwrite(chosen, 1u, count, out);
    }
    (void)fclose(out);
    printf("ticks %llu\n", ticks);
    return 0;
}
