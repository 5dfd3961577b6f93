/* Replays observations on the emulated board: prints the actions, and the instructions that they took. */
#include "gpf_policy.h"

#include <stdio.h>

extern void _start(void);
extern unsigned char __stack[];
void reset(void);

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define CPACR REGISTER(0xE000ED88u)         /* access to the floating-point unit */
#define SYSTICK_CONTROL REGISTER(0xE000E010u)
#define SYSTICK_RELOAD REGISTER(0xE000E014u)
#define SYSTICK_VALUE REGISTER(0xE000E018u) /* counts down, once in 40 instructions */
#define LONGEST 0xFFFFFFu

void reset(void)
{
    CPACR |= 0xFu << 20;
    __asm volatile("dsb\n isb");
    _start();
}

__attribute__((section(".vectors"), used)) static const struct {
    void *stack;
    void (*reset)(void);
} vectors = {__stack, reset};

$sensors

static int8_t chosen[$count];

int main(void)
{
    static gpf_state state;
    uint32_t before, after;
    printf("self-test %d\n", gpf_self_test());
    SYSTICK_RELOAD = LONGEST;
    SYSTICK_VALUE = 0u;
    SYSTICK_CONTROL = 5u;
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
