SELECT name, value FROM oncegate_meta WHERE name IN ('schema_version', 'schema')
-- ====

SELECT second.id, coalesce(name.text, ''), second.target, second.step, second.place, second.entry,
       second.resource, second.other, second.other_resource, second.found_at, later.state
FROM oncegate_second AS second
LEFT JOIN oncegate_entry AS later ON later.id = second.entry
LEFT JOIN oncegate_name AS name ON name.id = later.surface
WHERE second.dismissed_at IS NULL AND second.id > {place} ORDER BY second.id LIMIT {place}
