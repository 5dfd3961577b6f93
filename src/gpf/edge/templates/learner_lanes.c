/* Many learners at once, on a computer; they share the code's work space, and nothing else. */
#include "gpf_learner.h"

size_t gpf_learner_size(void);
size_t gpf_state_size(void);
size_t gpf_block_size(void);
void gpf_begin_lanes(gpf_learner *learners, int count, const uint64_t *words);
void gpf_step_lanes(
    gpf_learner *learners, gpf_state *states, int count, const float *sensors, int columns, const float *rewards,
    const uint8_t *kinds, int64_t *actions);

/* What the last step of a lane was. */
enum { FIRST, RUNNING, ENDED, OUT_OF_TIME };

size_t gpf_learner_size(void)
{
    return sizeof(gpf_learner);
}

size_t gpf_state_size(void)
{
    return sizeof(gpf_state);
}

size_t gpf_block_size(void)
{
    return GPF_BLOCK;
}

void gpf_begin_lanes(gpf_learner *learners, int count, const uint64_t *words)
{
    for (int n = 0; n < count; ++n) {
        gpf_learner_begin(learners + n, words + 4 * n);
    }
}

void gpf_step_lanes(
    gpf_learner *learners, gpf_state *states, int count, const float *sensors, int columns, const float *rewards,
    const uint8_t *kinds, int64_t *actions)
{
    for (int n = 0; n < count; ++n) {
        const float *row = sensors + (size_t)n * (size_t)columns;
        if (kinds[n] == FIRST) {
            actions[n] = gpf_start(learners + n, states + n, row);
        } else if (kinds[n] == ENDED) {
            gpf_end(learners + n, states + n, rewards[n]);
        } else {
            actions[n] = gpf_step(learners + n, states + n, rewards[n], row);
        }
    }
}
