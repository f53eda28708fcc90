/* SPDX-License-Identifier: Apache-2.0 */
/* Stands for the real driver library when the limiter is linked: the linker takes only its name. */
