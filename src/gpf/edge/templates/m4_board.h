/* Start-up and clock of the emulated board; include it once. */
#include <stdint.h>

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

static void start_clock(void)
{
    SYSTICK_RELOAD = LONGEST;
    SYSTICK_VALUE = 0u;
    SYSTICK_CONTROL = 5u;
}
