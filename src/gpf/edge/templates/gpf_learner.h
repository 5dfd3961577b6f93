/* A navigator that gpf exported and that keeps learning: sensor readings and rewards in, actions out.

   Call gpf_learner_begin() once, and gpf_restore() after it to go on from what was saved. In every episode call
   gpf_start() with the first readings, then gpf_step() once in every control period with the reward of the last
   action, and gpf_end() when the source is found. Call gpf_end_epoch() after every episode, or every few, with the
   metric by which the network grows: $metric_is.
   Nothing is allocated. The functions share static work space: call them from one thread. */
#ifndef GPF_LEARNER_H
#define GPF_LEARNER_H

#include <stddef.h>
#include <stdint.h>

$settings

#ifndef GPF_REAL
#define GPF_REAL float /* double is for tests on a computer */
#endif
typedef GPF_REAL gpf_real;

#define GPF_SENSORS 5        /* left and right reading; wind speed, m/s; where the wind blows to, rad; heading, rad */
#define GPF_BAD_SENSORS (-1) /* for a sensor or reward that is NaN or beyond +-1e6; nothing is learned then */
#define GPF_GROWS (GPF_GROW_PATIENCE && GPF_MAX_DEPTH > GPF_START_DEPTH)
#define GPF_HEAD GPF_MAX_DEPTH /* index of the output layer; hidden layers come before it */
#define GPF_PARAMETERS \
    ((GPF_INPUTS + 1) * GPF_WIDTH + (GPF_MAX_DEPTH - 1) * (GPF_WIDTH + 1) * GPF_WIDTH + (GPF_WIDTH + 1) * GPF_ACTIONS)

/* What gpf_end_epoch() returns: the sum of what happened. */
#define GPF_GROWN 1
#define GPF_PRUNED 2
#define GPF_FROZEN 4
#define GPF_THAWED 8

typedef struct {
    double power_1, power_2; /* of Adam's betas, after the updates so far */
    int32_t still;           /* epochs in a row in which the weights held still */
    int32_t frozen;
    int32_t masked;   /* whether weights may be pruned */
    int32_t observed; /* whether `previous` holds its weights */
} gpf_layer;

/* All that is learned, and all that learning goes by. Parameters are kept by layer, the output layer last: the weights
   of each input, then the biases. */
typedef struct {
    double rate;        /* of learning; 0 to act without learning */
    double exploration; /* share of random actions */
    uint64_t stream[4]; /* of random numbers: xoshiro256++ */
    uint32_t sequence;  /* number of times that it was saved */
    int32_t epoch;
    int32_t depth; /* hidden layers */
    gpf_layer layers[GPF_MAX_DEPTH + 1];
    gpf_real values[GPF_PARAMETERS], first[GPF_PARAMETERS], second[GPF_PARAMETERS];
    float belief[GPF_PARAMETERS]; /* below 0: pruned; not used for biases */
#if GPF_FREEZE_PATIENCE
    gpf_real previous[GPF_PARAMETERS]; /* the weights at the end of the last epoch */
#endif
    int32_t prunes_due[GPF_MAX_DEPTH]; /* epochs left until each pruning; 0 for none */
    /* The metric so far. */
    gpf_real before, peak; /* best value before the window, and best mean of the recent values */
    int32_t has_before, has_peak, cooldown, window_length, recent_length;
    gpf_real window[GPF_GROW_PATIENCE + 1], recent[GPF_DROP_WINDOW + 1];
} gpf_learner;

/* An episode. */
typedef struct {
#if GPF_REMEMBERS
$memory
#endif
    float inputs[GPF_INPUTS]; /* of the network, for the last observation */
    int32_t action;           /* the last one; -1 before the first */
} gpf_state;

/* The exported network, before it learns anything. The words begin its random stream; they must not all be 0. */
void gpf_learner_begin(gpf_learner *learner, const uint64_t words[4]);

/* Begin an episode: the first action, 0 to GPF_ACTIONS - 1, or GPF_BAD_SENSORS. */
int gpf_start(gpf_learner *learner, gpf_state *state, const float sensors[GPF_SENSORS]);

/* Learn from the reward of the last action and from what was sensed after it: the next action, or GPF_BAD_SENSORS.
   When time runs out, call it a last time and ignore the action. */
int gpf_step(gpf_learner *learner, gpf_state *state, float reward, const float sensors[GPF_SENSORS]);

/* Learn from the last reward of an episode that has reached its end. */
void gpf_end(gpf_learner *learner, gpf_state *state, float reward);

/* Grow, prune, freeze and thaw what is due. */
int gpf_end_epoch(gpf_learner *learner, gpf_real metric);

/* The outputs of the network, which are the values of the actions. */
void gpf_respond(const gpf_learner *learner, const gpf_real inputs[GPF_INPUTS], gpf_real outputs[GPF_ACTIONS]);

/* One step of Adam on the squared error of an action's value; `next` is what the network sees next, or 0 at an end. */
void gpf_update(
    gpf_learner *learner, const gpf_real inputs[GPF_INPUTS], int action, float reward, const gpf_real *next);

#define GPF_BLOCK (24u + sizeof(gpf_learner)) /* bytes of a saved block, and of a slot */

/* Where a saved block goes: bytes of slot 0 or 1, from an offset on. Returns 0 if they could not be written. */
typedef int (*gpf_writer)(void *context, int slot, size_t offset, const void *bytes, size_t count);

/* Save into the slot that does not hold the last block; returns whether all was written. */
int gpf_save(gpf_learner *learner, gpf_writer write, void *context);

/* Go on from the newer of two blocks that is whole; returns its slot, or -1, and then nothing has changed. */
int gpf_restore(gpf_learner *learner, const unsigned char *slot_0, const unsigned char *slot_1);

/* CRC-32 of some bytes, as in zlib; `crc` is that of the bytes before them, or 0. */
uint32_t gpf_crc32(uint32_t crc, const void *bytes, size_t count);

/* The name of an action. */
const char *gpf_action_name(int action);

/* Where this navigator comes from, as JSON. */
const char *gpf_metadata(void);

/* Bytes of static memory, one learner and one state. */
size_t gpf_learner_ram(void);

#endif
