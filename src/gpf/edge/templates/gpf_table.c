/* A navigator that gpf exported as a table of actions; gpf_table.h says how to call it. It needs no libm. */
#include "gpf_table.h"

#include <stdint.h>

/* The action for each observation that the tokenizer tells apart: (left * LEVELS + right) * OCTANTS + octant. */
static const uint8_t actions[$states] = {
$table
};

$data

static const char metadata[] = $metadata;

static const char *const action_names[GPF_ACTIONS] = {$names};

$tokenizer

int gpf_table_action(const float sensors[GPF_SENSORS])
{
    for (int i = 0; i < GPF_SENSORS; ++i) {
        if (!(sensors[i] > -1e6f && sensors[i] < 1e6f)) {
            return GPF_BAD_SENSORS; /* also NaN */
        }
    }
    return actions[(level(sensors[0]) * LEVELS + level(sensors[1])) * OCTANTS + octant(sensors)];
}

const char *gpf_action_name(int action)
{
    return action >= 0 && action < GPF_ACTIONS ? action_names[action] : "none";
}

const char *gpf_metadata(void)
{
    return metadata;
}

int gpf_self_test(void)
{
    int wrong = 0;
    for (int n = 0; n < $tests; ++n) {
        wrong += gpf_table_action(test_sensors[n]) != test_actions[n];
    }
    return wrong;
}

#ifdef GPF_MAIN
#include <stdio.h>

int main(void)
{
    const int wrong = gpf_self_test();
    printf("RAM: 0 bytes\n");
    printf("flash: %lu bytes of constants\n",
           (unsigned long)(sizeof actions + sizeof test_sensors + sizeof test_actions + sizeof metadata));
    printf("self-test: %d of %d observations wrong\n", wrong, $tests);
    return wrong != 0;
}
#endif
