/* ---- Saving ---- */

#define MAGIC 0x4c465047u /* "GPFL" */
#define VERSION 1u

/* What a block begins with; the learner and its CRC-32 follow. */
typedef struct {
    uint32_t magic, version, settings, sequence, length;
} block_head;

uint32_t gpf_crc32(uint32_t crc, const void *bytes, size_t count)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
    const unsigned char *p = bytes;
    crc = ~crc;
    for (size_t k = 0; k < count; ++k) {
        crc ^= p[k];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return ~crc;
}

int gpf_save(gpf_learner *g, gpf_writer write, void *context)
{
    const uint32_t sequence = g->sequence + 1u;
    const block_head head = {MAGIC, VERSION, GPF_SETTINGS, sequence, (uint32_t)sizeof *g};
    const int slot = (int)(sequence & 1u);
    uint32_t crc;
    int written;
    g->sequence = sequence;
    crc = gpf_crc32(gpf_crc32(0u, &head, sizeof head), g, sizeof *g);
    written = write(context, slot, 0u, &head, sizeof head) && write(context, slot, sizeof head, g, sizeof *g) &&
              write(context, slot, sizeof head + sizeof *g, &crc, sizeof crc);
    if (!written) {
        g->sequence = sequence - 1u; /* the same slot again next time: the other one is whole */
    }
    return written;
}

/* Whether a block is whole and of this program; its sequence number goes to `sequence`. */
static int is_whole(const unsigned char *block, uint32_t *sequence)
{
    block_head head;
    uint32_t crc;
    memcpy(&head, block, sizeof head);
    *sequence = head.sequence;
    if (head.magic != MAGIC || head.version != VERSION || head.settings != GPF_SETTINGS ||
        head.length != sizeof(gpf_learner)) {
        return 0;
    }
    memcpy(&crc, block + sizeof head + sizeof(gpf_learner), sizeof crc);
    return crc == gpf_crc32(0u, block, sizeof head + sizeof(gpf_learner));
}

int gpf_restore(gpf_learner *g, const unsigned char *slot_0, const unsigned char *slot_1)
{
    uint32_t sequence_0, sequence_1;
    const int whole_0 = is_whole(slot_0, &sequence_0), whole_1 = is_whole(slot_1, &sequence_1);
    const int newer = whole_1 && (!whole_0 || (int32_t)(sequence_1 - sequence_0) > 0);
    if (!whole_0 && !whole_1) {
        return -1;
    }
    memcpy(g, (newer ? slot_1 : slot_0) + sizeof(block_head), sizeof *g);
    return newer;
}
